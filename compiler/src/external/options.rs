//! Options of external targets: `NAME[:OPTION=VALUE]...`.

/// The option of every target: a region with fewer multiply-accumulates stays with Weft.
const MIN_MACS: &str = "min_macs";

/// Options of a target, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetOptions {
    list: Vec<(String, String)>,
}

impl TargetOptions {
    /// Reads `OPTION=VALUE` joined by `:`; an empty text for none. `target` is the target's name, `own` its options.
    ///
    /// # Errors
    /// An option that the target does not have, and a `min_macs` that is no number.
    pub fn parse(target: &str, own: &[(&str, &str)], text: &str) -> Result<TargetOptions, String> {
        let known: Vec<&str> = [MIN_MACS].into_iter().chain(own.iter().map(|o| o.0)).collect();
        let mut list = vec![];
        for part in text.split(':').filter(|p| !p.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}`: needs OPTION=VALUE"))?;
            if !known.contains(&name) {
                let known = crate::attr::known(&known);
                return Err(format!("the external target `{target}` has no option `{name}`{known}"));
            }
            list.push((name.to_string(), value.to_string()));
        }
        let options = TargetOptions { list };
        options.min_macs()?;
        Ok(options)
    }
    /// The value of an option, if it is given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.list.iter().rev().find(|o| o.0 == name).map(|o| o.1.as_str())
    }
    /// The value of an option as a number.
    ///
    /// # Errors
    /// A value that is none.
    pub fn number(&self, name: &str) -> Result<Option<f64>, String> {
        let parse = |v: &str| v.parse().map_err(|_| format!("the option {name}={v} is no number"));
        self.get(name).map(parse).transpose()
    }
    /// The options that a region's time may depend on: all but `min_macs`.
    pub(super) fn of_times(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().filter(|o| o.0 != MIN_MACS).map(|o| (o.0.as_str(), o.1.as_str()))
    }
    /// Multiply-accumulates from which on a region is taken whatever the estimates say.
    ///
    /// # Errors
    /// A value that is no number.
    pub fn min_macs(&self) -> Result<Option<f64>, String> {
        self.number(MIN_MACS)
    }
}
