//! Headless Chromium on a software adapter, and the server that it opens pages of.

use super::trace::{Protocol, Tasks};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Opens `path` of a folder, and gives what the page says at its end. What it puts goes to the folder `run`; the
/// browser keeps its own files outside of the folder, in `profile`.
///
/// # Errors
/// A browser that does not start or ends by itself; a page that says nothing for `limit`.
pub fn drive(browser: &str, folder: &Path, path: &str, profile: &Path, limit: Duration) -> Result<String, String> {
    let (server, address) = local(path)?;
    let mut child = Browser(started(command(browser, &[&address], profile).stdout(Stdio::null()))?);
    serve_until(&server, folder, &mut child.0, limit)
}

/// The same, with the tasks of the page's main thread, by Chromium's trace.
///
/// # Errors
/// As for [`drive`]; a browser that traces nothing.
pub fn drive_traced(
    browser: &str,
    folder: &Path,
    path: &str,
    profile: &Path,
    limit: Duration,
) -> Result<(String, Tasks), String> {
    let (server, address) = local(path)?;
    // The protocol's pipes are the descriptors 3 and 4.
    let piped = ["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null", browser, "--remote-debugging-pipe"];
    let mut c = command("sh", &[&piped[..], &["about:blank"]].concat(), profile);
    let mut child = Browser(started(c.stdin(Stdio::piped()).stdout(Stdio::piped()))?);
    let mut protocol = Protocol::new(&mut child.0)?;
    protocol.begin(&address)?;
    let said = serve_until(&server, folder, &mut child.0, limit)?;
    Ok((said, protocol.end()?))
}

/// A server on this machine, and the address of a page of it.
fn local(path: &str) -> Result<(TcpListener, String), String> {
    let server = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no server: {e}"))?;
    let port = server.local_addr().map_err(|e| e.to_string())?.port();
    Ok((server, format!("http://127.0.0.1:{port}/{path}")))
}

/// Serves a folder until the program ends.
///
/// # Errors
/// A port that is taken.
pub fn serve(folder: &Path, port: u16) -> Result<(), String> {
    let server = TcpListener::bind(("127.0.0.1", port)).map_err(|e| format!("port {port}: {e}"))?;
    eprintln!("http://127.0.0.1:{port}/ shows {}; Ctrl-C ends it", folder.display());
    for stream in server.incoming().flatten() {
        let folder = folder.to_path_buf();
        std::thread::spawn(move || {
            if let Err(e) = answer(stream, &folder) {
                eprintln!("a request failed: {e}");
            }
        });
    }
    Ok(())
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

fn command(browser: &str, own: &[&str], profile: &Path) -> Command {
    let mut c = Command::new(browser);
    c.args(own)
        .args(["--headless=new", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--window-size=1400,900"])
        .args(["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    c
}

fn started(c: &mut Command) -> Result<Child, String> {
    c.spawn().map_err(|e| format!("{}: {e}", c.get_program().to_string_lossy()))
}

/// Serves the folder until the page says how it went; what it puts goes to `run`.
fn serve_until(server: &TcpListener, folder: &Path, browser: &mut Child, limit: Duration) -> Result<String, String> {
    server.set_nonblocking(true).map_err(|e| e.to_string())?;
    let (says, heard) = std::sync::mpsc::channel();
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Ok(said) = heard.try_recv() {
            return Ok(said);
        }
        match server.accept() {
            // A browser opens connections that it does not use, and stops reading from others: none waits for another.
            Ok((stream, _)) => {
                let (folder, says, owner) = (folder.to_path_buf(), says.clone(), browser.id());
                std::thread::spawn(move || match answer(stream, &folder) {
                    Ok(Some(Wish::Said(text))) => drop(says.send(text)),
                    Ok(Some(Wish::EndGpu)) => end_gpu_process(owner),
                    Ok(None) => {}
                    Err(e) => eprintln!("a request failed: {e}"),
                });
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
            Err(e) => return Err(e.to_string()),
        }
        if let Ok(Some(status)) = browser.try_wait() {
            return Err(format!("the browser ended: {status}"));
        }
    }
    Err(format!("it said nothing for {} s", limit.as_secs()))
}

/// A wish of a page to the program that drives it.
enum Wish {
    /// It is done, and says how it went.
    Said(String),
    /// The process that has the GPU ends, as by a driver that fails.
    EndGpu,
}

/// Ends the browser's process that has the GPU.
fn end_gpu_process(browser: u32) {
    let Ok(listed) = Command::new("ps").args(["-A", "-o", "pid=,ppid=,args="]).output() else { return };
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let rows: Vec<(u32, u32, &str)> = text
        .lines()
        .filter_map(|line| {
            let (pid, rest) = line.trim_start().split_once(' ')?;
            let (parent, args) = rest.trim_start().split_once(' ')?;
            Some((pid.parse().ok()?, parent.parse().ok()?, args))
        })
        .collect();
    let mut own = vec![browser];
    // Parents come before their children once the list was gone through so often.
    for _ in 0..4 {
        let more = rows.iter().filter(|r| own.contains(&r.1) && !own.contains(&r.0)).map(|r| r.0).collect::<Vec<_>>();
        own.extend(more);
    }
    for (pid, ..) in rows.iter().filter(|r| own.contains(&r.0) && r.2.contains("--type=gpu-process")) {
        // It may have ended by itself.
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
}

/// Answers one request; gives what the page wants.
fn answer(mut stream: TcpStream, folder: &Path) -> std::io::Result<Option<Wish>> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or("/").trim_start_matches('/'));
    // A query is for the page.
    let path = path.split('?').next().filter(|p| !p.is_empty()).unwrap_or("index.html").to_string();
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
        "POST" if path == "said" || path == "end-the-gpu" => (200, vec![]),
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
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    };
    let n = content.len();
    write!(stream, "HTTP/1.1 {status} .\r\nContent-Type: {kind}\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(&content)?;
    Ok(match (method, path.as_str()) {
        ("POST", "said") => Some(Wish::Said(String::from_utf8_lossy(&body).into_owned())),
        ("POST", "end-the-gpu") => Some(Wish::EndGpu),
        _ => None,
    })
}

/// Writes a file, with its folder.
///
/// # Errors
/// The system's, with the file.
pub fn write(file: &Path, content: &[u8]) -> Result<(), String> {
    let folder: PathBuf = file.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(file, content))
        .map_err(|e| format!("{}: {e}", file.display()))
}
