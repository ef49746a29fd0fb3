//! The `weft` command: it parses options and prints tables and JSON. The libraries do the work.
//!
//! [`run`] is the whole command. Another program can call it with [`Extensions`] to get `weft` with more passes, for
//! example `cli/examples/scale_constants.rs`.

mod args;
pub mod arrays;
mod bench;
mod bisect;
mod bundle;
mod bundling;
mod c_target;
mod cases;
mod ceilings;
mod compare;
mod compile;
mod completions;
mod device;
mod devices;
mod diff;
mod dims;
mod driver_stats;
mod edit;
pub mod error;
mod executor;
mod explain;
mod export;
mod external;
mod extract;
mod host_calls;
mod host_library;
mod html_report;
mod images;
mod inputs;
mod inspect;
mod layout_options;
mod machine;
mod measuring;
mod memory;
mod models;
mod node_errors;
mod opt;
mod oracle;
mod output;
pub mod own_process;
mod parts;
mod precision;
mod range_checks;
mod report;
mod run;
mod said;
mod shown;
mod table;
mod terminal;
mod trace;
mod tune;
mod tuning;
mod tuning_files;
mod values_by_name;
mod view;
mod zoo;

use args::Command;
use compiler::external::ExternalTarget;
use error::{CliError, CliResult, Code, catch_bugs};
pub use memory::Memory;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
pub use weft::Extensions;

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
    let args: Vec<OsString> = args.into_iter().collect();
    match completions::answer(&args) {
        Ok(false) => {}
        Ok(true) => return 0,
        Err(e) => return usage(&e, &args),
    }
    let mut cli = match args::shared::parse(args.iter().cloned()) {
        Ok(cli) => cli,
        Err(e) if !e.use_stderr() => {
            let _ = e.print();
            return 0;
        }
        Err(e) => return usage(&e, &args),
    };
    std::panic::set_hook(Box::new(|_| {}));
    let functions = host_calls::functions(cli.command.common(), &extensions.host_functions);
    extensions.targets.extend([&onednn::TARGET as &dyn ExternalTarget, &c_target::TARGET]);
    let registered = extensions.register().map_err(CliError::from).and(functions);
    let result = registered.and_then(|functions| {
        // SAFETY: no thread was started yet.
        unsafe { external::provide_threads(cli.command.common()) };
        let bundle = cli.command.bundle_args();
        cli.command.common_mut().allow_native = bundle.allow_native;
        cli.command.common_mut().functions = functions;
        cli.command.common_mut().schedules = args::Schedules(extensions.schedules.clone());
        cli.command.common_mut().registry = extensions.passes.clone();
        let creates = matches!(cli.command, Command::Tune(_) | Command::Edit(_));
        if !matches!(cli.command, Command::Tuning(_)) {
            tuning::provide(cli.command.common_mut(), creates)?;
        }
        catch_bugs(|| dispatch(&cli.command, &extensions))
    });
    let common = cli.command.common();
    output::log_stages(common);
    match result {
        Ok(()) => 0,
        Err(e) => {
            e.print();
            if !common.state.json_is_written() {
                // Where even this cannot be written, the exit code says it.
                let _ = output::write_json(common, &e.to_json());
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
        Some(a) => CliError::usage(format!("`{}` is not UTF-8 text, and this is read as text", a.to_string_lossy()))
            .help("rename the file or folder, or give a link to it"),
        None => CliError::from_usage(e),
    };
    match no_text {
        Some(_) => error.print(),
        None => terminal::print_error(e.render().to_string().replacen("error:", &label, 1).trim_end(), &label),
    }
    let json = args.iter().filter_map(|a| a.to_str()).find(|a| *a == "--json" || a.starts_with("--json="));
    if let Some(json) = json {
        let target = json.strip_prefix("--json=").unwrap_or("-").to_string();
        let common = args::Common { json: Some(target), ..Default::default() };
        let _ = output::write_json(&common, &error.to_json());
    }
    code
}

/// Options that no pass of this build honours are refused rather than ignored.
fn check_options(command: &Command, extensions: &Extensions) -> CliResult<()> {
    let common = command.common();
    executor::check_passes(common, extensions)?;
    layout_options::check(common)?;
    Ok(())
}

/// Output paths are tried before the work.
fn check_outputs(command: &Command) -> CliResult<()> {
    let (files, folder) = match command {
        Command::Compile(a) => ([a.output.as_ref(), None], a.emit_dir.as_ref()),
        Command::Opt(a) => ([a.output.as_ref(), None], None),
        Command::Run(a) => {
            let folder = a.output.as_ref().filter(|o| args::names_folder(o));
            ([a.output.as_ref().filter(|_| folder.is_none()), None], folder)
        }
        Command::Bench(a) => ([a.output.as_ref(), a.timeline.as_ref()], None),
        Command::Compare(a) => ([a.output.as_ref(), a.write_keep.as_ref()], None),
        Command::Export(a) => ([a.output.as_ref(), None], a.c.as_ref()),
        Command::Extract(a) => ([Some(&a.output), a.with_inputs.as_ref()], None),
        Command::Bisect(a) => ([None, None], a.output.as_ref()),
        Command::Report(a) => ([Some(&a.output), None], None),
        Command::Tuning(a) => ([a.output.as_ref(), None], None),
        _ => ([None, None], None),
    };
    let common = command.common();
    let json = common.json.as_deref().filter(|target| *target != "-").map(Path::new);
    json.into_iter().chain(files.into_iter().flatten().map(PathBuf::as_path)).try_for_each(output::verify_writable)?;
    folder.map_or(Ok(()), |f| output::verify_folder(f))
}

/// Sizes in files and data are refused beyond what the machine has left.
fn bound_memory() {
    let free = weft::memory::free_memory().and_then(|free| usize::try_from(free).ok());
    compiler::tensor::limit_host_memory(free.unwrap_or(isize::MAX as usize));
}

fn dispatch(command: &Command, extensions: &Extensions) -> CliResult<()> {
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
        Command::Tune(a) => tune::execute_command(a),
        Command::Tuning(a) => tuning_files::execute(a),
        Command::Edit(a) => edit::execute(a),
        Command::Diff(a) => diff::execute(a),
        Command::Report(a) => html_report::execute(a),
        Command::View(a) => view::execute(a),
        Command::Zoo(a) => zoo::execute(a),
        Command::Completions(a) => completions::execute(a),
        Command::Cases(a) => cases::execute(a),
        Command::Measure(a) => measuring::execute(a),
        Command::Oracle(a) => oracle::execute(a),
    }
}
