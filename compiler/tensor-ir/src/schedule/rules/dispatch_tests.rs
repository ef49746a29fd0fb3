//! The dispatcher: the priced candidate is the one that is applied, and the estimate of unscheduled functions asks the
//! same rules.

use super::dispatch::{Picks, rules_for};
use super::predict::prepare;
use super::script::NOTHING;
use super::sketch::Sketch;
use super::{choices, schedule};
use crate::profile::DeviceProfile;
use crate::schedule::ScheduleTarget;
use crate::schedule::estimator::estimate;
use crate::schedule::testing::{asking, conv, elementwise_chain, matmul, row_sum, softmax};

#[test]
fn the_candidate_that_is_priced_is_the_one_that_is_applied() {
    for p in [DeviceProfile::lavapipe(), DeviceProfile::named("ada").expect("a profile")] {
        for f in
            [matmul(512, 256, 128), conv(1, 64, 28, 28, 64, 3, 1, 1), row_sum(3, 777), elementwise_chain(&[64, 30])]
        {
            let mut sketch = Sketch::new(f, &[], (&p).into(), &NOTHING);
            prepare(&mut sketch, false);
            for unit in sketch.units().unwrap_or_else(|e| panic!("{e}")) {
                let rules = rules_for((&p).into(), &NOTHING, &unit);
                let pick = Picks::of(&sketch.view(), &unit, &rules, &NOTHING).next().expect("a rule");
                assert!(pick.cost().is_some(), "{} has no price for {}", pick.rule.name, unit.name());
                pick.apply(&mut sketch, &unit).unwrap_or_else(|d| panic!("{}", d.0));
                let made = choices(&sketch.f.trace);
                for line in pick.candidate.lines(&unit) {
                    let own = made.iter().find(|c| c.unit == line.unit && c.point == line.point);
                    assert!(own.is_none_or(|c| c.value == line.value), "{}: {line:?}", pick.candidate);
                }
            }
        }
    }
}

#[test]
fn a_rule_that_is_asked_for_decides_the_estimate() {
    let p = DeviceProfile::named("ada").expect("a profile");
    let total =
        |target: ScheduleTarget<'_>| estimate(&matmul(1024, 512, 512), &[], target).expect("an estimate").total();
    let asked = |rule: &str| total((&asking(p.clone(), rule)).into());
    let [own, direct, tiled] = [total((&p).into()), asked("direct"), asked("matmul-tiled")];
    assert!(direct > 2.0 * own, "tiles are cheaper");
    assert_eq!(tiled, own);
}

#[test]
fn functions_are_one_kernel_where_that_is_cheaper() {
    let p = DeviceProfile::named("ada").expect("a profile");
    let f = softmax(300, 1000);
    assert_eq!(schedule(&f, &[], &p).expect("a schedule").rule, "rows");
    assert_eq!(estimate(&f, &[], &p).expect("an estimate").kernels.len(), 1);
}
