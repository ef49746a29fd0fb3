//! The external targets that come with Weft: `dnnl` by the feature of that name, `c` by the feature `c`.

#[cfg(feature = "c")]
pub mod c;

use crate::error::Error;
use compiler::external::{ExternalTarget, find_target, register_target};
use compiler::name::Name;
use std::sync::OnceLock;

/// The targets of this build.
fn targets() -> Vec<&'static dyn ExternalTarget> {
    vec![
        #[cfg(feature = "dnnl")]
        &onednn::TARGET,
        #[cfg(feature = "c")]
        &c::TARGET,
    ]
}

/// Makes the targets of this build known to all compilations of the process; a second call changes nothing. Which ones
/// take part says [`Options::external`](crate::Options::external). A target of the program's own that has such a name stays.
///
/// # Errors
/// [`Error::Extension`]: a name that is no word.
pub fn register() -> Result<(), Error> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    let others = || targets().into_iter().filter(|t| find_target(Name::new(t.name())).is_err());
    let done = DONE.get_or_init(|| others().try_for_each(register_target));
    done.clone().map_err(Error::Extension)
}
