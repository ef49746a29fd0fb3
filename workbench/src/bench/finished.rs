//! A result with everything that says where, when and how it was measured.

use super::places::Place;
use super::record::{BenchRecord, Environment, Machine, Method, Work};
use super::request::Request;
use super::sweep::Setting;
use crate::state::State;

/// A result with what is known of its setting, its device and its machine.
pub fn completed(
    a: &Request,
    place: &Place,
    setting: &Setting,
    model: &str,
    (work, before): (Work, State),
    measured: BenchRecord,
) -> BenchRecord {
    let (settings, ceilings) = (&setting.settings, place.ceilings);
    BenchRecord {
        schema: 1,
        model: crate::models::short_name(model),
        dtype: if settings.amp == "off" { "f32" } else { "f16" },
        device: crate::device::describe(&place.device),
        ceilings,
        doubt: measured.run.doubt(ceilings),
        settings: setting.record(),
        env: Environment::default(),
        work,
        method: Method::of(a, settings),
        machine: Machine { before, after: State::now() },
        ..measured
    }
}
