//! Transposes through workgroup memory: which functions the rule takes, their memory traffic, and equal results for
//! every tile.

use super::{Choice, choices, schedule, schedule_with};
use crate::profile::DeviceProfile;
use crate::schedule::testing::{asking, assert_same};
use crate::text::parse_tensor_function;
use crate::tir::TensorFunction;
use crate::traffic::{Totals, traffic};

fn parsed(text: &str) -> TensorFunction {
    parse_tensor_function(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn plain(t: &str, rows: usize, columns: usize) -> TensorFunction {
    parsed(&format!(
        "tensor @t(%x: {t}[{rows},{columns}], out %y: {t}[{columns},{rows}]) {{
  for i in 0..{columns} {{ for j in 0..{rows} {{ block y {{ %y[i, j] <- %x[j, i] }} }} }}
}}"
    ))
}

/// Images with `c` channels outside, and what has them inside; with a scale and an operand that lies like the result.
fn channels_inside([n, c, h, w]: [usize; 4]) -> TensorFunction {
    parsed(&format!(
        "tensor @t(%x: f32[{n},{c},{h},{w}], %s: f32[{c}], %z: f32[{n},{h},{w},{c}], out %y: f32[{n},{h},{w},{c}]) {{
  for n in 0..{n} {{ for h in 0..{h} {{ for w in 0..{w} {{ for c in 0..{c} {{
    block y {{ %y[n, h, w, c] <- max(%x[n, c, h, w] * %s[c], 0.0) + %z[n, h, w, c] }} }} }} }} }}
}}"
    ))
}

/// Two operands that lie across, one of them read only inside of a border.
fn two_operands(rows: usize, columns: usize) -> TensorFunction {
    let inside = rows + 1;
    parsed(&format!(
        "tensor @t(%a: f32[3,{rows},{columns}], %b: f32[{inside},{columns}], out %y: f32[3,{columns},{inside}]) {{
  for n in 0..3 {{ for i in 0..{columns} {{ for j in 0..{inside} {{
    block y {{ %y[n, i, j] <- select(all(j >= 1), %a[n, j - 1, i], 0.5) - %b[j, i] }} }} }} }}
}}"
    ))
}

/// Some operand that is loaded along another axis than the result is stored, staged without conflicts and in whole
/// sectors. In f32 the estimate takes tiles on its own; of halves, which caches hold twice as many of, it may not.
#[test]
fn large_transposes_have_no_bank_conflicts_and_use_whole_sectors() {
    for name in ["ada", "navi31", "bmg"] {
        let p = DeviceProfile::named(name).expect("a profile");
        let own = schedule(&plain("f32", 2048, 1024), &[], &p).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(own.rule, "transpose-tiled", "{name}: {:?}", own.declined);
        let asked = asking(p.clone(), "transpose-tiled");
        let mixed = channels_inside([4, 64, 56, 56]);
        for f in [plain("f32", 2048, 1024), plain("f16", 2048, 1024), mixed] {
            let s = schedule(&f, &[], &asked).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(s.rule, "transpose-tiled", "{name}: {:?}", s.declined);
            let (_, body) = s.function.kernels()[0];
            let all = traffic(&s.function, body, &p);
            let shared = Totals::of(&all, |a| a.shared);
            assert!(shared.passes > 0.0 && shared.passes <= 1.1 * shared.least_passes, "{name}: {all:?}");
            for a in all.iter().filter(|a| !a.shared && a.bytes > 256.0) {
                assert!(a.used() >= 0.9, "{name}: {a:?} {:?}", s.applied);
            }
        }
    }
}

#[test]
fn every_tile_keeps_the_results() {
    let workloads = [
        plain("f32", 36, 52),
        plain("f32", 12, 70),
        plain("f32", 33, 17),
        channels_inside([2, 5, 6, 7]),
        channels_inside([1, 40, 4, 5]),
        two_operands(35, 8),
        two_operands(5, 67),
    ];
    let mut tried = 0;
    for p in ["lavapipe", "baseline", "navi31"].map(|n| DeviceProfile::named(n).expect("a profile")) {
        let p = asking(p, "transpose-tiled");
        for f in workloads.iter().map(TensorFunction::canonical) {
            let s = schedule(&f, &[], &p).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(s.rule, "transpose-tiled", "{}: {:?}", p.profile.name, s.declined);
            let all = choices(&s.function.trace);
            let tile = all.iter().find(|c| c.point == "tile".into()).expect("a choice");
            for value in &tile.of {
                let one = Choice { unit: tile.unit, point: tile.point, value: value.clone() };
                let mut g = schedule_with(&f, &[], &p, &[one]).unwrap_or_else(|e| panic!("{e}")).function;
                g.name = f.name;
                assert_same(&f, &g);
                tried += 1;
            }
        }
    }
    assert!(tried > 80, "{tried}");
}

#[test]
fn what_lies_alike_or_is_small_is_not_staged() {
    let alike = parsed(
        "tensor @t(%x: f32[512,8,64], out %y: f32[8,512,64]) {
  for i in 0..8 { for j in 0..512 { for k in 0..64 { block y { %y[i, j, k] <- %x[j, i, k] } } } }
}",
    );
    let p = DeviceProfile::named("ada").expect("a profile");
    for f in [alike, plain("f32", 4, 6)] {
        let s = schedule(&f, &[], &p).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(s.rule, "elementwise", "{:?}", s.declined);
    }
}
