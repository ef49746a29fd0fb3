//! Lists of differences, of which the first lines are shown.

use crate::output::print_wrapped;
use workbench::Result;

/// Lines of a list that are shown without `-v`.
pub(super) const FIRST: usize = 12;

/// A heading and the first lines of a list.
pub(super) fn first_of<T>(title: &str, list: &[T], most: usize, show: impl Fn(&T) -> String) -> Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    print_wrapped(&format!("\n{title}: {}", list.len()))?;
    list.iter().take(most).try_for_each(|x| print_wrapped(&format!("  {}", show(x))))?;
    if list.len() > most {
        print_wrapped(&format!("  ... {} more (-v shows them)", list.len() - most))?;
    }
    Ok(())
}
