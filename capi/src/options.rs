//! Options as lines of `key=value`.

use crate::error::Failure;
use weft::Sizes;
use workbench::options::{Heading, Opt, Tabled};
use workbench::settings::Settings;

/// Keys of [`loading`].
const OF_LOADING: &str = "batch, dim.NAME, shape.NAME, keep_open, allow_native";

/// The pairs of a text, in order.
pub(crate) fn pairs(text: &str) -> Result<Vec<(&str, &str)>, Failure> {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let pair = |l| str::split_once(l, '=').ok_or_else(|| Failure::usage(format!("option `{l}`: give key=value")));
    lines.map(|l| pair(l).map(|(key, value)| (key.trim(), value.trim()))).collect()
}

/// The error of a value that does not fit.
pub(crate) fn wrong(key: &str, value: &str, needs: &str) -> Failure {
    Failure::usage(format!("option {key}={value}: needs {needs}"))
}

pub(crate) fn unknown(key: &str, there: &str) -> Failure {
    Failure::usage(format!("there is no option `{key}`")).help(format!("there are: {there}"))
}

fn number(key: &str, value: &str) -> Result<usize, Failure> {
    value.parse().map_err(|_| wrong(key, value, "a number"))
}

fn truth(key: &str, value: &str) -> Result<bool, Failure> {
    value.parse().map_err(|_| wrong(key, value, "true or false"))
}

/// The options of loading a model: sizes, and whether a text may run code of the machine.
pub(crate) fn loading(text: &str) -> Result<(Sizes, bool), Failure> {
    let (mut sizes, mut allows_native) = (Sizes::default(), false);
    for (key, value) in pairs(text)? {
        match key.split_once('.').unwrap_or((key, "")) {
            ("batch", "") => sizes.batch = Some(number(key, value)?),
            ("keep_open", "") => sizes.keep_open = truth(key, value)?,
            ("allow_native", "") => allows_native = truth(key, value)?,
            ("dim", name) => {
                sizes.set_dim(name, value).map_err(|why| wrong(key, value, why.trim_start_matches("needs ")))?
            }
            ("shape", name) => {
                let shape: Option<Vec<usize>> = value.split('x').map(|n| n.parse().ok()).collect();
                let shape = shape.ok_or_else(|| wrong(key, value, "a shape such as 1x3x224x224"))?;
                sizes.shapes.push((name.into(), shape));
            }
            _ => return Err(unknown(key, OF_LOADING)),
        }
    }
    Ok((sizes, allows_native))
}

/// A request for a compilation.
pub(crate) struct Request {
    pub settings: Settings,
    pub require_compiled: bool,
    pub allow_native: bool,
    pub runs_in_flight: usize,
}

/// Keys of a request beside the options of the table.
const BESIDE: &str = "runs_in_flight, require_compiled, allow_native";

/// The keys of a request; of an option whose values have names, `option.NAME`.
fn keys() -> String {
    let key = |row: &Opt<Settings>| match row.value.split_once('=') {
        Some((name, _)) => format!("{}.{name}", row.name),
        None => row.name.to_string(),
    };
    let taken = Settings::rows().iter().filter(|row| is_taken(row));
    taken.map(key).chain([BESIDE.to_string()]).collect::<Vec<_>>().join(", ")
}

/// Options of the model are those of loading.
fn is_taken(row: &Opt<Settings>) -> bool {
    row.heading != Heading::Model
}

impl Request {
    pub(crate) fn parse(text: &str) -> Result<Request, Failure> {
        let settings = Settings::of_program();
        let mut request = Request { settings, require_compiled: false, allow_native: false, runs_in_flight: 1 };
        for (key, value) in pairs(text)? {
            match key {
                "require_compiled" => request.require_compiled = truth(key, value)?,
                "allow_native" => request.allow_native = truth(key, value)?,
                "runs_in_flight" => request.runs_in_flight = number(key, value)?,
                // One for each core.
                "threads" if value == "0" => {}
                "cache" if value == "user" => request.settings.cache = None,
                _ => request.take(key, value)?,
            }
        }
        request.settings.allow_native = request.allow_native;
        if request.settings.amp == "auto" {
            return Err(Failure::usage("option amp=auto: needs values to calibrate with, which C has no way to give")
                .help("it is off or fp16 here; `weft compare --write-keep` finds the nodes for keep_f32="));
        }
        Ok(request)
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), Failure> {
        let (name, part) = key.split_once('.').unwrap_or((key, ""));
        let found = Settings::row(name).filter(|row| is_taken(row) && row.value.contains('=') != part.is_empty());
        let Some(row) = found.filter(|_| !part.is_empty() || !key.ends_with('.')) else {
            return Err(unknown(key, &keys()));
        };
        let named = (!part.is_empty()).then(|| format!("{part}={value}"));
        let texts = match named {
            Some(_) if value.is_empty() => return Err(wrong(key, value, "a value")),
            Some(text) => vec![text],
            None if row.many && !row.listed => value.split(',').map(str::to_string).collect(),
            None => vec![value.to_string()],
        };
        texts.iter().try_for_each(|t| self.settings.ask(row.name, t)).map_err(|why| wrong(key, value, &why))
    }

    /// The first option that asks for another compilation, which a bundle has behind it.
    pub(crate) fn of_compilation(&self) -> Option<&str> {
        let asks = |name: &&String| {
            Settings::row(name).is_some_and(|row| row.heading == Heading::Compiler || row.name == "target")
        };
        self.settings.given.iter().find(asks).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_keys_and_values() {
        let text = "batch=4\n\n dim.h = 32..64:32 \nshape.x=1x3\nkeep_open=true";
        let (s, allows_native) = loading(text).map_err(drop).expect("parses");
        assert!(!allows_native && loading("allow_native=true").is_ok_and(|l| l.1));
        assert_eq!((s.batch, s.keep_open, &s.shapes), (Some(4), true, &vec![("x".to_string(), vec![1, 3])]));
        assert_eq!((&s.open, &s.steps), (&vec![("h".to_string(), 32, 64)], &vec![("h".to_string(), 32)]));
        let r = Request::parse("device=cpu\nthreads=2\namp=fp16\nkeep_f32=a,b").map_err(drop).expect("parses");
        let s = &r.settings;
        assert_eq!((s.device.as_str(), s.threads, s.keep_f32.len()), ("cpu", Some(2), 2));
        assert_eq!(r.of_compilation(), Some("amp"));
        for bad in ["x", "batch=x", "dim.h=5..3", "shape.x=3,4", "batches=1", "keep_open=1"] {
            assert!(loading(bad).is_err(), "{bad}");
        }
        let r = Request::parse("host_call.op:relu=f\nhost_call./a.b=g").map_err(drop).expect("parses");
        assert_eq!(r.settings.host_call, ["op:relu=f", "/a.b=g"]);
        let r = Request::parse("nan=fast\nrules=direct\nquirk.some=off\nexternal=c").map_err(drop).expect("parses");
        assert_eq!((r.settings.nan.as_str(), r.settings.external.len()), ("fast", 1));
        for bad in [
            "host_call.=f",
            "host_call.a=",
            "host_call=f",
            "amp=auto",
            "opt_level=4",
            "threads=-1",
            "layout=x",
            "batch=1",
        ] {
            assert!(Request::parse(bad).is_err(), "{bad}");
        }
    }
}
