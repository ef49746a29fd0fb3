//! The external targets that come with Weft: `dnnl` by the feature of that name, `c` by the feature `c`.

#[cfg(feature = "c")]
pub mod c;

use crate::error::Error;
use compiler::external::{ExternalTarget, register_target};
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
/// take part says [`Options::external`](crate::Options::external).
///
/// # Errors
/// [`Error::Extension`]: a target of such a name is there.
pub fn register() -> Result<(), Error> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    let done = DONE.get_or_init(|| targets().into_iter().try_for_each(register_target));
    done.clone().map_err(Error::Extension)
}
