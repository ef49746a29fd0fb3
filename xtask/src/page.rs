//! `cargo xtask page [MODEL ...]`: exported pages in a browser.
//!
//! Each model is written by `weft export --web` and served on this machine; a script drives the page in headless
//! Chromium, on a software adapter: it runs the network, times it, sorts, opens a kernel, and meets a lost device,
//! wrong inputs and adapters that lack something. What went into a run and came out of it is compared by `weft compare`.

use crate::cargo::{build_weft, target_dir};
use crate::heading::heading;
use crate::report::{find_browser, succeed};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One line for the usage.
pub const HELP: &str =
    "[MODEL ...] drives pages of `weft export --web` in headless Chromium (two small networks by default)";

/// What drives a page.
const DRIVE: &str = include_str!("page/drive.js");

/// A network with convolutions, and one with a branch that data decide, whose integers and truth values are words.
const NETWORKS: [(&str, &str); 2] =
    [("convolutions", include_str!("page/convolutions.weft")), ("branch", include_str!("page/branch.weft"))];

/// Profiles that pages are for: what every browser has, and what browsers have on large cards.
const TARGETS: [&str; 2] = ["baseline", "webgpu"];

/// How long a page may take: software compiles its pipelines.
const LIMIT: Duration = Duration::from_secs(240);

/// Runs the command.
///
/// # Errors
/// The first page that failed.
pub fn run(args: &[String]) -> Result<(), String> {
    heading("cargo build --package weft-command");
    check(&build_weft(false)?, args)
}

/// Drives the pages of `models`, with the program `weft`.
///
/// # Errors
/// The first page that failed, with what it said. Where there is no browser and none can be installed, that is said
/// loudly.
pub fn check(weft: &Path, models: &[String]) -> Result<(), String> {
    let Some(browser) = find_browser() else { return Ok(()) };
    let folder = target_dir()?.join("pages");
    let mut all: Vec<String> = models.to_vec();
    if all.is_empty() {
        for (name, text) in NETWORKS {
            let file = folder.join(format!("{name}.weft"));
            write(&file, text.as_bytes())?;
            all.push(file.display().to_string());
        }
    }
    for (n, model) in all.iter().enumerate() {
        for target in TARGETS {
            let folder = folder.join(format!("{n}-{target}"));
            check_one(weft, browser, (model, target), &folder)
                .map_err(|e| format!("the page of {model} for {target}: {e}"))?;
        }
    }
    Ok(())
}

fn check_one(weft: &Path, browser: &str, (model, target): (&str, &str), folder: &Path) -> Result<(), String> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    succeed(Command::new(weft).args(["export", model, "-q", "--target", target, "--web"]).arg(folder))?;
    let index = folder.join("index.html");
    let page = std::fs::read_to_string(&index).map_err(|e| format!("{}: {e}", index.display()))?;
    write(
        &folder.join("driven.html"),
        page.replace("</html>", "<script type=\"module\" src=\"drive.js\"></script></html>").as_bytes(),
    )?;
    write(&folder.join("drive.js"), DRIVE.as_bytes())?;
    let server = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no server: {e}"))?;
    let port = server.local_addr().map_err(|e| e.to_string())?.port();
    let mut child = Browser(open(browser, &format!("http://127.0.0.1:{port}/driven.html"), &folder.join("browser"))?);
    let said = serve(&server, folder, &mut child.0)?;
    drop(child);
    match said.strip_prefix("ok ") {
        Some(seen) => eprintln!("the page of {model} for {target}: {seen}"),
        None => return Err(said),
    }
    // The interpreter is the judge of what the browser computed.
    let runs = folder.join("run");
    let mut c = Command::new(weft);
    c.args(["compare", model, "--device", "cpu", "-q", "-i"]).arg(runs.join("inputs.npz"));
    c.arg("--against").arg(runs.join("outputs.npz"));
    succeed(&mut c)
}

/// A browser that ends with its owner.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(browser: &str, address: &str, profile: &Path) -> Result<Child, String> {
    let mut c = Command::new(browser);
    c.args(["--headless=new", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--window-size=1400,900"])
        .args(["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(address);
    let quiet = c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.spawn().map_err(|e| format!("{browser}: {e}"))
}

/// Serves the folder until the page says how it went; what it puts goes to `run`.
fn serve(server: &TcpListener, folder: &Path, browser: &mut Child) -> Result<String, String> {
    server.set_nonblocking(true).map_err(|e| e.to_string())?;
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        match server.accept() {
            // A browser opens connections that it does not use.
            Ok((stream, _)) => match answer(stream, folder) {
                Ok(Some(said)) => return Ok(said),
                Ok(None) => {}
                Err(e) => eprintln!("a request failed: {e}"),
            },
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
            Err(e) => return Err(e.to_string()),
        }
        if let Ok(Some(status)) = browser.try_wait() {
            return Err(format!("the browser ended: {status}"));
        }
    }
    Err(format!("it said nothing for {} s", LIMIT.as_secs()))
}

/// Answers one request; gives what the page says at its end.
fn answer(mut stream: TcpStream, folder: &Path) -> std::io::Result<Option<String>> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or("/").trim_start_matches('/').to_string());
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let inside = Path::new(&path).components().all(|c| matches!(c, Component::Normal(_)));
    let (status, content) = match method {
        "POST" if path == "said" => (200, vec![]),
        "POST" if inside => {
            let to = folder.join("run").join(&path);
            to.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::write(to, &body)?;
            (200, vec![])
        }
        "GET" if inside => std::fs::read(folder.join(&path)).map_or((404, vec![]), |content| (200, content)),
        _ => (404, vec![]),
    };
    let kind = match Path::new(&path).extension().and_then(|e| e.to_str()) {
        Some("html") => "text/html",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    };
    let n = content.len();
    write!(stream, "HTTP/1.1 {status} .\r\nContent-Type: {kind}\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(&content)?;
    Ok((method == "POST" && path == "said").then(|| String::from_utf8_lossy(&body).into_owned()))
}

fn write(file: &Path, content: &[u8]) -> Result<(), String> {
    let folder: PathBuf = file.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(file, content))
        .map_err(|e| format!("{}: {e}", file.display()))
}
