//! The `weft` command: it parses options and prints tables and JSON. The libraries do the work.
//!
//! [`run`] is the whole command. Another program can call it with [`Extensions`] to get `weft` with more passes, for
//! example `cli/examples/scale_constants.rs`.

mod args;
mod bench;
mod bisect;
mod bundle;
mod bundling;
mod cases;
mod ceilings;
mod compare;
mod compile;
mod completions;
mod config;
mod devices;
mod diff;
mod edit;
mod error;
mod explain;
mod export;
mod extract;
mod host_calls;
mod html_report;
mod inspect;
mod interrupt;
mod memory;
mod opt;
mod output;
mod range_checks;
mod records;
mod report;
mod results;
mod run;
mod table;
mod terminal;
mod trace;
mod tune;
mod tuning_files;
mod view;
mod zoo;

use args::Command;
pub use memory::Memory;
pub use records::{SHARED, schemas};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
pub use weft::Extensions;
use workbench::error::catch_bugs;
use workbench::settings::Schedules;
use workbench::watcher::Watched;
use workbench::{Code, Error, Result};

/// Vulkan loaders print a line on stderr when the session folder is not set; nothing of ours uses it.
fn quiet_loader() {
    if cfg!(target_os = "linux") && std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: called first in `main`, while there is one thread.
        unsafe { std::env::set_var("XDG_RUNTIME_DIR", std::env::temp_dir()) };
    }
}

/// The command with the arguments `args` (the program's name first). To be called first in `main`: it may set a
/// variable of the environment.
pub fn run(args: impl IntoIterator<Item = OsString>, extensions: Extensions) -> ExitCode {
    ExitCode::from(exit_code(args, extensions))
}

/// As [`run`], with the exit code as a number.
pub fn exit_code(args: impl IntoIterator<Item = OsString>, mut extensions: Extensions) -> u8 {
    quiet_loader();
    // Rows of a program of one's own may be named on its command line.
    let registered = weft::external::register().and_then(|()| extensions.register()).map_err(Error::from);
    let args: Vec<OsString> = args.into_iter().collect();
    match completions::answer(&args) {
        Ok(false) => {}
        Ok(true) => return 0,
        Err(e) => return usage(&e, &args),
    }
    let filled = match config::with_defaults(args) {
        Ok(filled) => filled,
        Err(e) => {
            error::print(&e);
            return e.code as u8;
        }
    };
    let mut cli = match args::shared::parse(filled.args.iter().cloned(), &filled.ids()) {
        Ok(cli) => cli,
        Err(e) if !e.use_stderr() => {
            let _ = e.print();
            return 0;
        }
        Err(e) => return usage(&e, &filled.args),
    };
    std::panic::set_hook(Box::new(|_| {}));
    cli.command.common_mut().watch = Watched(Arc::new(output::Terminal::new(cli.command.common().quiet)));
    let functions = workbench::host_calls::functions(cli.command.common(), &extensions.host_functions);
    let result = registered.and(functions).and_then(|functions| {
        // SAFETY: no thread was started yet.
        unsafe { workbench::external::provide_threads(cli.command.common()) };
        let bundle = cli.command.bundle_args();
        cli.command.common_mut().allow_native = bundle.allow_native;
        cli.command.common_mut().functions = functions;
        cli.command.common_mut().schedules = Schedules(extensions.schedules.clone());
        cli.command.common_mut().registry = extensions.passes.clone();
        let creates = matches!(cli.command, Command::Tune(_) | Command::Edit(_));
        if !matches!(cli.command, Command::Tuning(_) | Command::Results(_) | Command::Measure(_)) {
            workbench::tuning::provide(cli.command.common_mut(), creates)?;
        }
        catch_bugs(|| dispatch(&cli.command, &extensions))
    });
    let common = cli.command.common();
    output::log_stages(common);
    match result {
        Ok(()) => 0,
        Err(e) => {
            let e = filled.placed(e);
            error::print(&e);
            if !common.state.json_is_written() {
                // Where even this cannot be written, the exit code says it.
                let _ = output::write_json(common, &e.record());
            }
            e.code as u8
        }
    }
}

/// Shows what is wrong with the command line. It could not be read, so `--json` is looked for in its words.
fn usage(e: &clap::Error, args: &[OsString]) -> u8 {
    let code = Code::Usage as u8;
    let label = format!("error[{code}]:");
    let no_text =
        args.iter().filter(|a| a.to_str().is_none()).find(|_| e.kind() == clap::error::ErrorKind::InvalidUtf8);
    let error = match no_text {
        Some(a) => Error::usage(format!("`{}` is not UTF-8 text, and this is read as text", a.to_string_lossy()))
            .help("rename the file or folder, or give a link to it"),
        None => error::of_usage(e),
    };
    match no_text {
        Some(_) => error::print(&error),
        None => terminal::print_error(e.render().to_string().replacen("error:", &label, 1).trim_end(), &label),
    }
    let json = args.iter().filter_map(|a| a.to_str()).find(|a| *a == "--json" || a.starts_with("--json="));
    if let Some(json) = json {
        let target = json.strip_prefix("--json=").unwrap_or("-").to_string();
        let common = args::Common { json: Some(target), ..Default::default() };
        let _ = output::write_json(&common, &error.record());
    }
    code
}

/// Options that no pass of this build honours are refused rather than ignored.
fn check_options(command: &Command, extensions: &Extensions) -> Result<()> {
    let common = command.common();
    workbench::executor::check_passes(common, extensions)?;
    workbench::layout_options::check(common)?;
    Ok(())
}

/// Output paths are tried before the work.
fn check_outputs(command: &Command) -> Result<()> {
    let (files, folder) = match command {
        Command::Compile(a) => ([a.output.as_ref(), None], a.emit_dir.as_ref()),
        Command::Opt(a) => ([a.output.as_ref(), None], None),
        Command::Run(a) => {
            let folder = a.output.as_ref().filter(|o| workbench::written::names_folder(o));
            ([a.output.as_ref().filter(|_| folder.is_none()), None], folder)
        }
        Command::Bench(a) => ([a.output.as_ref(), a.timeline.as_ref()], None),
        Command::Compare(a) => ([a.output.as_ref(), a.write_keep.as_ref()], None),
        Command::Export(a) => ([a.output.as_ref(), None], a.c.as_ref()),
        Command::Extract(a) => ([Some(&a.output), a.with_inputs.as_ref()], None),
        Command::Bisect(a) => ([None, None], a.output.as_ref()),
        Command::Report(a) => ([Some(&a.output), None], None),
        Command::Tuning(a) => ([a.output.as_ref(), None], None),
        Command::Results(a) => ([a.output.as_ref(), None], None),
        _ => ([None, None], None),
    };
    let common = command.common();
    let json = common.json.as_deref().filter(|target| *target != "-").map(Path::new);
    json.into_iter()
        .chain(files.into_iter().flatten().map(PathBuf::as_path))
        .try_for_each(workbench::written::verify_writable)?;
    Ok(folder.map_or(Ok(()), |f| workbench::written::verify_folder(f))?)
}

/// Sizes in files and data are refused beyond what the machine has left.
fn bound_memory() {
    let free = weft::memory::free_memory().and_then(|free| usize::try_from(free).ok());
    compiler::tensor::limit_host_memory(free.unwrap_or(isize::MAX as usize));
}

fn dispatch(command: &Command, extensions: &Extensions) -> Result<()> {
    check_options(command, extensions)?;
    check_outputs(command)?;
    bound_memory();
    match command {
        Command::Devices(a) => devices::execute(a),
        Command::Inspect(a) => inspect::execute(a),
        Command::Compile(a) => compile::execute(a),
        Command::Opt(a) => opt::execute(a, extensions),
        Command::Run(a) => run::execute(a),
        Command::Bench(a) => bench::execute(a),
        Command::Compare(a) => compare::execute(a),
        Command::Explain(a) => explain::execute(a),
        Command::Export(a) => export::execute(a),
        Command::Extract(a) => extract::execute(a),
        Command::Bisect(a) => bisect::execute(a),
        Command::Tune(a) => tune::execute(a),
        Command::Tuning(a) => tuning_files::execute(a),
        Command::Edit(a) => edit::execute(a),
        Command::Diff(a) => diff::execute(a),
        Command::Report(a) => html_report::execute(a),
        Command::Results(a) => results::execute(a),
        Command::View(a) => view::execute(a),
        Command::Zoo(a) => zoo::execute(a),
        Command::Completions(a) => completions::execute(a),
        Command::Cases(a) => cases::execute(a),
        Command::Measure(a) => workbench::worker::serve(&a.common),
    }
}
