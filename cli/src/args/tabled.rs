//! Options of the command line that follow from a table of options.

use super::headings::{COMPILER, DEVICE, INPUTS, MODEL};
use clap::builder::{PossibleValuesParser, ValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ops::{Deref, DerefMut};
use workbench::options::{Heading, Opt, Tabled};

/// The options of a table, read from a command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct FromTable<T>(pub T);

impl<T> Deref for FromTable<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for FromTable<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// The heading in help.
fn heading(h: Heading) -> Option<&'static str> {
    match h {
        Heading::Device => Some(DEVICE),
        Heading::Model => Some(MODEL),
        Heading::Compiler | Heading::Files => Some(COMPILER),
        Heading::Inputs => Some(INPUTS),
        Heading::Own => None,
    }
}

/// The text of a value is read by the row.
fn parser<T: Tabled>(row: &'static Opt<T>) -> ValueParser {
    let choices = (row.choices)();
    if !choices.is_empty() && !row.listed {
        return PossibleValuesParser::new(choices).into();
    }
    ValueParser::new(move |text: &str| row.set(&mut T::default(), text).map(|()| text.to_string()))
}

fn arg<T: Tabled>(row: &'static Opt<T>) -> Arg {
    let a = Arg::new(row.name).long(row.long_name()).help(row.sentence()).help_heading(heading(row.heading));
    let a = row.short.map_or(a.clone(), |c| a.clone().short(c));
    let a = row.env.map_or(a.clone(), |env| a.clone().env(env).hide_env_values(true));
    if row.flag {
        return a.action(ArgAction::SetTrue);
    }
    let name = if row.value.is_empty() { row.name.to_uppercase() } else { row.value.into() };
    let a = a.value_name(name).value_parser(parser(row));
    let a = if row.words > 1 { a.num_args(1..=row.words) } else { a };
    let a = if row.many { a.action(ArgAction::Append) } else { a };
    if row.default.is_empty() { a } else { a.default_value(row.default) }
}

impl<T: Tabled> clap::Args for FromTable<T> {
    fn augment_args(command: Command) -> Command {
        T::rows().iter().fold(command, |c, row| c.arg(arg(row)))
    }
    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Tabled> clap::FromArgMatches for FromTable<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut out = FromTable(T::default());
        out.update_from_arg_matches(matches)?;
        Ok(out)
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for row in T::rows() {
            if matches!(matches.value_source(row.name), None | Some(ValueSource::DefaultValue)) {
                continue;
            }
            let texts: Vec<String> = match row.flag {
                true => vec![matches.get_flag(row.name).to_string()],
                false => matches.get_many::<String>(row.name).into_iter().flatten().cloned().collect(),
            };
            let texts = if row.listed { vec![texts.join(",")] } else { texts };
            for text in texts {
                let wrong =
                    |why| clap::Error::raw(clap::error::ErrorKind::InvalidValue, format!("{}: {why}\n", row.written()));
                row.set(&mut self.0, &text).map_err(wrong)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::seq::IteratorRandom;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use workbench::bench::{Decoding, Timing};
    use workbench::bisect::Right;
    use workbench::bundles::BundleOptions;
    use workbench::compare::Against;
    use workbench::inputs::Inputs;
    use workbench::settings::Settings;

    const REQUESTS: usize = 300;
    /// Texts such as users have; each option is given those that it takes.
    const TEXTS: &[&str] =
        &["a", "layer1.0/conv 1", "it's", "--odd", "x=y", "1x3x2", "7", "2", "12.5", "h=4", "NAME=off", "c=nhwc", "@f"];

    fn text<T: Tabled>(row: &Opt<T>, rng: &mut ChaCha8Rng) -> String {
        let choices = (row.choices)();
        let fits = |t: &&str| row.set(&mut T::default(), t).is_ok();
        TEXTS.iter().copied().chain(choices).filter(fits).choose(rng).unwrap_or_default().to_string()
    }

    /// A request with some options of the table.
    fn drawn<T: Tabled>(rng: &mut ChaCha8Rng) -> T {
        let mut out = T::default();
        for row in T::rows() {
            if rng.random_range(0..3) > 0 {
                continue;
            }
            let count = if row.many { rng.random_range(1..3) } else { 1 };
            let texts: Vec<String> =
                (0..count).map(|_| if row.flag { "true".into() } else { text(row, rng) }).collect();
            let texts = if row.listed { vec![texts.join(",")] } else { texts };
            texts.iter().for_each(|t| row.set(&mut out, t).unwrap_or_else(|e| panic!("{} {t}: {e}", row.written())));
        }
        out
    }

    fn same<T: Tabled>(a: &T, b: &T) -> bool {
        T::rows().iter().all(|row| row.given(a) == row.given(b))
    }

    /// Any request becomes text, and the text the same request: words of a command line, and pairs.
    fn round_trips<T: Tabled>(name: &str) {
        let mut rng = ChaCha8Rng::seed_from_u64(50);
        let command = <FromTable<T> as clap::Args>::augment_args(Command::new("weft").no_binary_name(true));
        let mut seen = vec![false; T::rows().len()];
        for _ in 0..REQUESTS {
            let asked: T = drawn(&mut rng);
            let words = asked.words();
            let matches = command.clone().try_get_matches_from(&words);
            let matches = matches.unwrap_or_else(|e| panic!("{name} {words:?}: {e}"));
            let read = <FromTable<T> as clap::FromArgMatches>::from_arg_matches(&matches).expect("a request");
            assert!(same(&asked, &read.0), "{name} {words:?}: {:?}", read.0.words());
            let mut taken = T::default();
            taken.take(&asked.pairs()).expect("a request");
            assert!(same(&asked, &taken), "{name} {:?}", asked.pairs());
            let changed: Vec<&str> = asked.changed().map(|row| row.name).collect();
            T::rows().iter().zip(&mut seen).for_each(|(row, s)| *s |= changed.contains(&row.name));
        }
        let never: Vec<_> = T::rows().iter().zip(&seen).filter(|(_, s)| !**s).map(|(row, _)| row.name).collect();
        assert!(never.is_empty(), "{name}: never asked for: {never:?}");
    }

    #[test]
    fn a_request_as_text_is_the_same_request() {
        round_trips::<Settings>("settings");
        round_trips::<Inputs>("inputs");
        round_trips::<Timing>("timing");
        round_trips::<Decoding>("decoding");
        round_trips::<Against>("against");
        round_trips::<Right>("right");
        round_trips::<BundleOptions>("bundles");
    }

    fn reads_defaults<T: Tabled>() {
        for row in T::rows().iter().filter(|row| !row.default.is_empty()) {
            assert!(row.set(&mut T::default(), row.default).is_ok(), "{}", row.name);
        }
    }

    #[test]
    fn every_default_is_read() {
        reads_defaults::<Settings>();
        reads_defaults::<Inputs>();
        reads_defaults::<Timing>();
        reads_defaults::<Decoding>();
        reads_defaults::<Against>();
        reads_defaults::<Right>();
    }
}
