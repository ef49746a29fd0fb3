//! The time of a program from its start to its first submission, without and with the cache: `second_start [MODEL
//! [RUNS]]`. MODEL is a name of the zoo or a file, resnet50 without.
//!
//! Each start is a separate process; the first one finds an empty folder. It reports `device` (loader and driver until
//! the device is open), `model` (the network without reading its weights), `plan` (compiled, or read from disk),
//! `constants` (weights packed or mapped, and uploaded), `pipelines` (the driver's compilation of shaders) and
//! `submit`. Weft's own time is everything except `device` and `pipelines`.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weft::{Cache, Device, Model, Options, RunInput, Tensor};

type Done<T> = Result<T, Box<dyn Error>>;

const PARTS: [&str; 7] = ["to main", "device", "model", "plan", "constants", "pipelines", "submit"];

fn main() -> Done<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [child, model, folder, began] = args.as_slice()
        && child == "--start"
    {
        return start(model, Path::new(folder), began.parse()?);
    }
    let model = args.first().map_or("resnet50", String::as_str);
    let runs: usize = args.get(1).map_or(Ok(5), |n| n.parse())?;
    let folder = tempfile::tempdir()?;
    let first = timed(model, folder.path())?;
    let mut others = (0..runs.max(1)).map(|_| timed(model, folder.path())).collect::<Done<Vec<_>>>()?;
    others.sort_by(|a, b| a.iter().sum::<f64>().total_cmp(&b.iter().sum()));
    let second = &others[others.len() / 2];
    println!("{model}: milliseconds, and of {runs} later starts the one in the middle");
    println!("{:>12} {:>10} {:>10}", "", "first", "later");
    for (i, part) in PARTS.iter().enumerate() {
        println!("{part:>12} {:>10.1} {:>10.1}", first[i], second[i]);
    }
    let all = |t: &[f64]| t.iter().sum::<f64>();
    let own = |t: &[f64]| all(t) - t[1] - t[5];
    println!(
        "{:>12} {:>10.1} {:>10.1}   {:.3} of the first",
        "all",
        all(&first),
        all(second),
        all(second) / all(&first)
    );
    println!(
        "{:>12} {:>10.1} {:>10.1}   {:.3} of the first",
        "our own",
        own(&first),
        own(second),
        own(second) / own(&first)
    );
    Ok(())
}

/// Times of a process that starts.
fn timed(model: &str, folder: &Path) -> Done<Vec<f64>> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos().to_string();
    let output = Command::new(std::env::current_exe()?).args(["--start", model]).arg(folder).arg(began).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

/// One start: prints the milliseconds of each part.
fn start(model: &str, folder: &Path, began: u64) -> Done<()> {
    let to_main = SystemTime::now().duration_since(UNIX_EPOCH)?.saturating_sub(Duration::from_nanos(began));
    let mut mark = Instant::now();
    let mut part = || {
        let ms = mark.elapsed().as_secs_f64() * 1e3;
        mark = Instant::now();
        ms
    };
    let device = Device::open("0")?;
    let opened = part();
    let model = match Path::new(model).is_file() {
        true => Model::load(model)?,
        false => Model::from_module(benches::zoo::build(model, 1, 0)?),
    };
    let loaded = part();
    let options = Options::for_device(&device).cache(Cache::at(folder).with_weights());
    let compiled = model.compile(&options)?;
    let planned = part();
    let session = compiled.session(&device)?;
    let times = session.on_device().ok_or("the model does not run on a device as a whole")?.open_times();
    let ready = part();
    let inputs: Vec<Tensor> = session
        .inputs()
        .iter()
        .map(|(_, t)| Ok(compiler::text::random_tensor(t.dtype, &t.const_shape().ok_or("an open size")?, 1)))
        .collect::<Done<_>>()?;
    let given: Vec<RunInput<'_>> = inputs.iter().map(RunInput::Host).collect();
    let gpu = session.on_device().ok_or("no device")?;
    let submitted = pollster::block_on(gpu.run_on_device(&given))?;
    let submit = part();
    let rest = ready - times.pipelines;
    println!("{} {opened} {loaded} {planned} {rest} {} {submit}", to_main.as_secs_f64() * 1e3, times.pipelines);
    pollster::block_on(submitted.read())?;
    Ok(())
}
