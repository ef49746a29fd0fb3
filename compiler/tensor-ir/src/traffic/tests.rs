//! Kernels whose passes and sectors are counted by hand.

use super::{AccessTraffic, Totals, describe, traffic};
use crate::profile::DeviceProfile;
use crate::text::parse_tensor_function;

/// The accesses of a kernel written as text, on a device with subgroups of 32.
fn accesses(locals: &str, body: &str) -> Vec<AccessTraffic> {
    accesses_on("ada", locals, body)
}

fn accesses_on(device: &str, locals: &str, body: &str) -> Vec<AccessTraffic> {
    let text = format!(
        "tensor @f(%x: f32[64,256], %h: f16[64,256], %i: i32[64], out %y: f32[64,256]) {{\n{locals}\n  kernel k {{ {body} }}\n}}\n"
    );
    let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let profile = DeviceProfile::named(device).expect("a profile");
    let (_, kernel) = f.kernels()[0];
    traffic(&f, kernel, &profile)
}

/// The load of the block `y`.
fn load(locals: &str, body: &str) -> AccessTraffic {
    accesses(locals, body).into_iter().find(|a| a.block == "y".into() && !a.store).expect("a load")
}

#[test]
fn rows_that_are_multiples_of_the_banks_conflict() {
    let with = |columns: i64| {
        let body = "local_x for t in 0..32 { block y { %y[0, t] <- %s[t, 3] } }";
        load(&format!("buffer %s: f32[32,{columns}] shared"), body)
    };
    // Lanes stand 16 words apart: two banks, 16 words each.
    let rows = with(16);
    assert_eq!((rows.passes, rows.least_passes, rows.exact, rows.shared), (16.0, 1.0, true, true));
    assert_eq!(with(17).conflict(), 1.0);
    assert_eq!(with(32).conflict(), 32.0);
    assert_eq!(with(36).conflict(), 4.0);
}

#[test]
fn a_register_tile_reads_vectors_and_broadcasts() {
    // 16 x 16 threads with 4 x 4 results each: a subgroup has 2 rows of threads.
    let tile = |order: &str, shape: &str| {
        let body = format!(
            "local_y for ty in 0..16 {{ local_x for tx in 0..16 {{ for k in 0..16 {{ unroll for i in 0..4 {{ block y {{ %y[ty*4 + i, tx] <- %s[{order}] }} }} }} }} }}"
        );
        load(&format!("buffer %s: f32[{shape}] shared"), &body)
    };
    let by_row = tile("ty*4 + i, k", "64,16");
    // Two words a step, 64 words apart: one bank.
    assert_eq!((by_row.accesses, by_row.passes, by_row.least_passes), (4, 8.0, 4.0));
    let by_depth = tile("k, ty*4 + i", "16,68");
    assert_eq!((by_depth.accesses, by_depth.width, by_depth.passes), (1, 16, 1.0));
    assert_eq!((by_depth.times, by_depth.inside), (16, Some("k".into())));
}

#[test]
fn columns_in_halves_of_a_tile_have_no_conflicts() {
    let columns = |index: &str| {
        let body = format!(
            "local_y for ty in 0..2 {{ local_x for tx in 0..16 {{ unroll for h in 0..2 {{ vectorize for v in 0..4 {{ block y {{ %y[ty, {index}] <- %s[{index}] }} }} }} }} }}"
        );
        load("buffer %s: f32[128] shared", &body)
    };
    // Eight columns of a thread side by side: lanes 8 words apart, so 16 of the 32 banks serve 64 words.
    let near = columns("tx*8 + h*4 + v");
    assert_eq!((near.accesses, near.passes, near.least_passes), (2, 8.0, 4.0));
    let apart = columns("h*64 + tx*4 + v");
    assert_eq!((apart.accesses, apart.passes, apart.least_passes), (2, 4.0, 4.0));
}

#[test]
fn sectors_of_rows_columns_and_pieces() {
    let with = |index: &str| {
        let body = format!(
            "group_x for g in 0..4 {{ local_x for t in 0..32 {{ for k in 0..8 {{ block y {{ %y[g, t] <- %x[{index}] }} }} }} }}"
        );
        load("", &body)
    };
    let row = with("g, t + k*32");
    assert_eq!((row.bytes, row.sectors, row.used()), (128.0, 4.0, 1.0));
    let column = with("t, k");
    // Each lane fetches 32 bytes and uses 4.
    assert_eq!((column.sectors, column.used()), (32.0, 0.125));
    // 4 sectors where the start is a multiple of 8 elements, else 5.
    assert_eq!(with("g, t + k").sectors, 4.0 + 7.0 / 8.0);
    assert_eq!(with("g, t + k*4").sectors, 4.5);
}

#[test]
fn vectors_are_one_access_where_they_are_aligned() {
    let with = |param: &str, index: &str| {
        let body = format!(
            "local_x for t in 0..32 {{ for k in 0..2 {{ vectorize for v in 0..4 {{ block y {{ %y[0, t] <- %{param}[{index}] }} }} }} }}"
        );
        load("", &body)
    };
    let wide = with("x", "0, k*128 + t*4 + v");
    assert_eq!((wide.accesses, wide.width, wide.sectors), (1, 16, 16.0));
    assert_eq!(with("x", "0, k*3 + t*4 + v").accesses, 4);
    assert_eq!(with("h", "0, k*128 + t*4 + v").width, 8);
    // Two lanes a row of 8 elements: whole sectors.
    assert_eq!(with("x", "t/2, k*8 + (t % 2)*4 + v").used(), 1.0);
}

/// A copy of 16 columns by 16 x 8 threads: four lanes a row, all rows of a subgroup whole.
#[test]
fn other_subgroups_are_moved_by_whole_rows() {
    let body = "local_y for y in 0..8 { local_x for x in 0..16 { for k in 0..4 { vectorize for v in 0..4 { block y { %y[0, x] <- %x[y*4 + x/4, k*16 + (x % 4)*4 + v] } } } } }";
    let a = load("", body);
    assert_eq!((a.exact, a.width, a.sectors, a.used()), (true, 16, 16.0, 1.0));
}

#[test]
fn what_mixes_threads_and_loops_is_taken_in_the_middle() {
    let body = "group_x for g in 0..9 { local_x for t in 0..32 { block y { %y[0, t] <- %x[(g*32 + t)/7, 0] } } }";
    let a = load("", body);
    // Elements (128 + t) / 7 for 32 lanes: 18 to 22, one row of 256 each.
    assert_eq!((a.exact, a.sectors), (false, 5.0));
    let gather = load("", "local_x for t in 0..32 { block y { %y[0, t] <- %x[%i[t], 0] } }");
    assert!(gather.unknown);
}

#[test]
fn lanes_that_do_not_take_part_do_not_count() {
    let body = "local_x for t in 0..32 { block z { %s[t] <- %x[0, t] } } local_x for u in 0..8 { block y { %y[0, u] <- %s[u*32] } }";
    let a = load("buffer %s: f32[256] shared", body);
    assert_eq!((a.lanes, a.passes), (8, 8.0));
    let guarded = load("", "local_x for t in 0..32 { block y where (t < 3) { %y[0, t] <- %x[t, 0] } }");
    assert_eq!((guarded.lanes, guarded.sectors), (3, 3.0));
}

#[test]
fn the_first_subgroup_that_takes_part_is_counted_for_its_share() {
    let body = "local_x for t in 0..96 { block y where (t >= 64) { %y[0, t - 64] <- %x[t - 64, 0] } }";
    let a = load("", body);
    assert_eq!((a.lanes, a.sectors), (32, 32.0));
    assert!((a.share - 1.0 / 3.0).abs() < 1e-9, "{}", a.share);
    let body = "local_x for t in 0..96 { block y where (t < 64) { %y[0, t] <- %x[t, 0] } }";
    assert!((load("", body).share - 2.0 / 3.0).abs() < 1e-9);
}

#[test]
fn sums_weigh_by_how_often() {
    let list = accesses(
        "buffer %s: f32[32] shared",
        "local_x for t in 0..32 { for k in 0..8 { block s { %s[t] <- %x[k, t] } for j in 0..4 { block y { %y[k, t] <- %s[t] + %x[j, t] } } } }",
    );
    let loads = Totals::of(&list, |a| !a.shared && !a.store);
    assert_eq!((loads.accesses, loads.sectors, loads.bytes), (8.0 + 32.0, 160.0, 5120.0));
    assert_eq!(Totals::of(&list, |a| a.shared && !a.store).passes, 32.0);
}

#[test]
fn an_explanation_names_kernel_and_buffer() {
    let text = "tensor @f(%x: f32[32,32], out %y: f32[32,32]) {\n  kernel k { local_x for t in 0..32 { block y { %y[0, t] <- %x[t, 0] } } }\n}\n";
    let f = parse_tensor_function(text).expect("a function");
    let lines = describe(&f, &DeviceProfile::hopper());
    assert_eq!(
        lines,
        [
            "k loads from x: 4 bytes a lane, 12% of the fetched bytes used",
            "k stores to y: 4 bytes a lane, 100% of the fetched bytes used"
        ]
    );
}

/// A matrix of 16 x 16 halves in rows of so many: RADV loads a column of 8 bytes after the other, other drivers 16
/// bytes of each row.
#[test]
fn columns_of_a_matrix_meet_in_banks() {
    let conflict = |device: &str, row: i64| {
        let locals = format!("buffer %s: f16[16,{row}] shared\n  buffer %fa: f16[16,16] fragment(a)");
        let body = "subgroup_x for w in 0..1 { tensor for r in 0..16 { tensor for c in 0..16 { block y { %fa[r, c] <- %s[r, c] } } } }";
        let all = accesses_on(device, &locals, body);
        let load = all.iter().find(|a| a.shared && !a.store).expect("a load");
        (load.accesses, load.conflict())
    };
    assert_eq!([40, 72].map(|row| conflict("navi31", row)), [(4, 2.0); 2], "rows of 80 and 144 bytes");
    assert_eq!([36, 68, 44, 76].map(|row| conflict("navi31", row)), [(4, 1.0); 4], "72, 136, 88 and 152 bytes");
    assert_eq!([40, 72].map(|row| conflict("ada", row)), [(1, 1.0); 2]);
}

#[test]
fn loads_for_the_next_step_stop_or_repeat_the_last_one() {
    let of = |load: &str| {
        let body = format!("for k in 0..4 {{ local_x for t in 0..32 {{ block y {load} }} }}");
        self::load("buffer %r: f32[1] register", &body)
    };
    let guarded = of("where (k + 1 < 4) { %y[0, t] <- %x[k + 1, t] }");
    assert_eq!((guarded.times, guarded.sectors), (3, 4.0));
    let repeated = of("{ %y[0, t] <- %x[min(k + 1, 3), t] }");
    assert_eq!((repeated.times, repeated.sectors), (4, 3.0), "the last one is in a cache");
}

#[test]
fn subgroups_that_are_moved_by_whole_rows_stand_alike() {
    let body = "local_x for t in 0..128 { unroll for p in 0..2 { vectorize for v in 0..4 { block y { %y[0, v] <- %h[t/2, t % 2*8 + p*4 + v] } } } }";
    let l = load("buffer %r: f32[1] register", body);
    assert_eq!((l.accesses, l.width, l.sectors, l.exact), (1, 16, 16.0, true), "pieces of 32 bytes, each a sector");
}
