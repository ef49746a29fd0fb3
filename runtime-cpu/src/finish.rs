//! The beginning and the end of a tile: its sums, then steps on them, and their store.

/// Gives where the results of a tile go, the masks of its columns, and its sums: part of a body, in which `R` is rows
/// and `V` vectors.
macro_rules! begin {
    ($t:ident, [$row:ident, $column:ident]) => {{
        let out = $t.out.offset($row as isize * $t.out_stride).add($column);
        let mut masks = [mask(0); V];
        for v in 0..V {
            masks[v] = mask($t.columns.saturating_sub($column + v * LANES));
        }
        let mut sums = [[splat($t.initial.unwrap_or(0.0)); V]; R];
        if $t.initial.is_none() {
            for i in 0..R {
                for v in 0..V {
                    sums[i][v] = load(masks[v], out.offset(i as isize * $t.out_stride).add(v * LANES));
                }
            }
        }
        (out, masks, sums)
    }};
}
pub(crate) use begin;

/// Runs the steps of a tile on its sums, which are in registers, and stores them: part of a body, so that each index is
/// a constant.
macro_rules! finish {
    ($t:ident, [$row:ident, $column:ident], $masks:ident, $sums:ident, $out:ident, $integers:expr) => {
        macro_rules! each {
            ($i:ident, $v:ident, $sum:ident => $value:expr) => {
                for $i in 0..R {
                    for $v in 0..V {
                        let $sum = $sums[$i][$v];
                        $sums[$i][$v] = $value;
                    }
                }
            };
        }
        macro_rules! place {
            ($i:expr, $v:expr) => {
                $out.offset($i as isize * $t.out_stride).add($v * LANES)
            };
        }
        macro_rules! put {
            () => {
                for i in 0..R {
                    for v in 0..V {
                        store($masks[v], place!(i, v), $sums[i][v]);
                    }
                }
            };
        }
        for step in $t.steps {
            let columns = |at: *const f32| {
                let mut all = [splat(0.0); V];
                for v in 0..V {
                    all[v] = load($masks[v], at.add($column + v * LANES));
                }
                all
            };
            let element = |at: *const f32, stride: isize, i: usize, v: usize| {
                load($masks[v], at.offset(($row + i) as isize * stride).add($column + v * LANES))
            };
            match *step {
                Step::Add(x) => each!(i, v, sum => add(sum, splat(x))),
                Step::Mul(x) => each!(i, v, sum => mul(sum, splat(x))),
                Step::Max(x) => each!(i, v, sum => max(splat(x), sum)),
                Step::Min(x) => each!(i, v, sum => min(splat(x), sum)),
                Step::AddColumns(at) => {
                    let all = columns(at);
                    each!(i, v, sum => add(sum, all[v]));
                }
                Step::MulColumns(at) => {
                    let all = columns(at);
                    each!(i, v, sum => mul(sum, all[v]));
                }
                Step::AddEach(at, stride) => each!(i, v, sum => add(sum, element(at, stride, i, v))),
                Step::MulEach(at, stride) => each!(i, v, sum => mul(sum, element(at, stride, i, v))),
                Step::AddRows(at, stride) => {
                    each!(i, v, sum => add(sum, splat(*at.offset(($row + i) as isize * stride))))
                }
                Step::MulRows(at, stride) => {
                    each!(i, v, sum => mul(sum, splat(*at.offset(($row + i) as isize * stride))))
                }
                Step::Keep => put!(),
                Step::AddKept => each!(i, v, sum => add(sum, load($masks[v], place!(i, v)))),
                Step::MulKept => each!(i, v, sum => mul(sum, load($masks[v], place!(i, v)))),
                Step::Div(x) if $integers => each!(i, v, sum => div(sum, splat(x))),
                Step::DivBy(x, reciprocal) if $integers => each!(i, v, sum => quotient(sum, x, reciprocal)),
                Step::Round if $integers => each!(i, v, sum => round(sum)),
                Step::AddInt(x) if $integers => each!(i, v, sum => add_int(sum, splat(x))),
                Step::AddIntColumns(at) if $integers => {
                    let all = columns(at);
                    each!(i, v, sum => add_int(sum, all[v]));
                }
                Step::SubIntColumns(at) if $integers => {
                    let all = columns(at);
                    each!(i, v, sum => sub_int(sum, all[v]));
                }
                Step::ToFloat if $integers => each!(i, v, sum => to_float(sum)),
                Step::ToInt(low, high) if $integers => each!(i, v, sum => to_int(sum, low, high)),
                _ => unreachable!("sums of floats have no such step"),
            }
        }
        match $t.bytes {
            Some((to, stride)) if $integers => {
                let (to, own) = (to.offset($row as isize * stride).add($column), $t.columns - $column);
                // No condition inside, so that the loops are unrolled and sums stay in registers.
                if own >= V * LANES {
                    for i in 0..R {
                        for v in 0..V {
                            store_bytes(to.offset(i as isize * stride).add(v * LANES), $sums[i][v]);
                        }
                    }
                } else {
                    put!();
                    for i in 0..R as isize {
                        for j in 0..own {
                            let low = $out.offset(i * $t.out_stride).add(j).read().to_bits() as u8;
                            *to.offset(i * stride).add(j) = low;
                        }
                    }
                }
            }
            _ => put!(),
        }
    };
}
pub(crate) use finish;
