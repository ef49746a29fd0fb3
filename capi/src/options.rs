//! Options as lines of `key=value`.

use crate::error::Failure;
use weft::{AmpMode, Cache, FuseMode, KeepF32, LayoutMode, Options, Sizes};

/// Keys of [`loading`].
const OF_LOADING: &str = "batch, dim.NAME, shape.NAME, keep_open, allow_native";
/// Keys of [`Request::parse`].
const OF_REQUESTS: &str = "device, threads, cache, cache_weights, runs_in_flight, target, amp, keep_f32, layout, fuse, \
                           opt_level, host_call.NODE, require_compiled, allow_native";

/// The pairs of a text, in order.
fn pairs(text: &str) -> Result<Vec<(&str, &str)>, Failure> {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let pair = |l| str::split_once(l, '=').ok_or_else(|| Failure::usage(format!("option `{l}`: give key=value")));
    lines.map(|l| pair(l).map(|(key, value)| (key.trim(), value.trim()))).collect()
}

/// What a value has to be.
fn wrong(key: &str, value: &str, needs: &str) -> Failure {
    Failure::usage(format!("option {key}={value}: needs {needs}"))
}

fn unknown(key: &str, there: &str) -> Failure {
    Failure::usage(format!("there is no option `{key}`")).help(format!("there are: {there}"))
}

fn number(key: &str, value: &str) -> Result<usize, Failure> {
    value.parse().map_err(|_| wrong(key, value, "a number"))
}

fn truth(key: &str, value: &str) -> Result<bool, Failure> {
    value.parse().map_err(|_| wrong(key, value, "true or false"))
}

/// The mode of that name.
fn mode<T: Copy>(key: &str, value: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, Failure> {
    let names = || all.iter().map(|&m| name(m)).collect::<Vec<_>>().join(", ");
    all.iter().copied().find(|&m| name(m) == value).ok_or_else(|| wrong(key, value, &format!("one of {}", names())))
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

/// What is asked of a compilation.
pub(crate) struct Request {
    pub device: String,
    pub threads: usize,
    pub target: Option<String>,
    pub require_compiled: bool,
    pub allow_native: bool,
    pub options: Options,
    /// Nodes, and the functions that take their places.
    pub host_calls: Vec<(String, String)>,
    /// The keys that ask for another compilation, which a bundle has behind it.
    pub of_compilation: Vec<String>,
}

impl Request {
    pub(crate) fn parse(text: &str) -> Result<Request, Failure> {
        let mut request = Request {
            device: "auto".into(),
            threads: 0,
            target: None,
            require_compiled: false,
            allow_native: false,
            options: Options::default(),
            host_calls: vec![],
            of_compilation: vec![],
        };
        let mut cache_weights = false;
        for (key, value) in pairs(text)? {
            let pipeline = &mut request.options.pipeline;
            match key {
                "device" => request.device = value.into(),
                "threads" => request.threads = number(key, value)?,
                "require_compiled" => request.require_compiled = truth(key, value)?,
                "allow_native" => request.allow_native = truth(key, value)?,
                "runs_in_flight" => request.options.runs_in_flight = number(key, value)?,
                "cache_weights" => cache_weights = truth(key, value)?,
                "cache" => {
                    request.options.cache = match value {
                        "off" => Cache::default(),
                        "user" => Cache::of_user(),
                        folder => Cache::at(folder),
                    }
                }
                "target" => request.target = Some(value.into()),
                "amp" => pipeline.amp = mode(key, value, &[AmpMode::Off, AmpMode::Fp16], AmpMode::name)?,
                "keep_f32" => pipeline.keep_f32 = value.split(',').map(KeepF32::listed).collect(),
                "layout" => pipeline.layout = mode(key, value, LayoutMode::ALL, LayoutMode::name)?,
                "fuse" => pipeline.fuse = mode(key, value, FuseMode::ALL, FuseMode::name)?,
                "opt_level" => {
                    let level = value.parse().ok().filter(|n| *n <= 3);
                    pipeline.opt_level = level.ok_or_else(|| wrong(key, value, "0, 1, 2 or 3"))?;
                }
                _ => match key.strip_prefix("host_call.") {
                    Some(node) if !node.is_empty() && !value.is_empty() => {
                        request.host_calls.push((node.into(), value.into()));
                    }
                    _ => return Err(unknown(key, OF_REQUESTS)),
                },
            }
            if key.starts_with("host_call.")
                || matches!(key, "target" | "amp" | "keep_f32" | "layout" | "fuse" | "opt_level")
            {
                request.of_compilation.push(key.into());
            }
        }
        if cache_weights {
            request.options.cache = request.options.cache.with_weights();
        }
        Ok(request)
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
        assert_eq!((r.device.as_str(), r.threads, r.options.pipeline.keep_f32.len()), ("cpu", 2, 2));
        assert_eq!(r.of_compilation, ["amp", "keep_f32"]);
        for bad in ["x", "batch=x", "dim.h=5..3", "shape.x=3,4", "batches=1", "keep_open=1"] {
            assert!(loading(bad).is_err(), "{bad}");
        }
        let r = Request::parse("host_call.op:relu=f\nhost_call./a.b=g").map_err(drop).expect("parses");
        assert_eq!(r.host_calls, [("op:relu".into(), "f".into()), ("/a.b".into(), "g".into())]);
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
