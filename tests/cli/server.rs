//! A web server that serves a folder, well or in one of the ways in which servers and lines are at fault.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What it does wrong. Unless it says so, the index is served well and only bundles are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Fine,
    /// Bytes come slowly, so that there is time to be killed in.
    Slow,
    /// The connection ends after half of what was asked for, each time.
    Truncate,
    /// One byte is another one.
    Flip,
    /// After half of it nothing comes any more.
    Stall,
    /// It states, and sends, some bytes more than there are.
    Longer,
    /// The same without stating how many.
    LongerChunked,
    /// A page of a proxy, with status 200.
    Html,
    /// That page also for the index.
    HtmlIndex,
    NotFound,
    Broken,
    /// It leads to itself once, and then serves well.
    Redirect,
    /// It leads to itself for ever.
    Loop,
    /// It ignores ranges.
    NoRanges,
    /// The first half is of one file, the rest of another one, without a tag to tell them.
    Changing,
    /// The same, but with tags.
    ChangingTagged,
}

pub(crate) struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
}

impl Server {
    /// Serves a folder until the value goes away.
    pub(crate) fn start(folder: PathBuf, mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            seen: Arc::default(),
            open: Arc::default(),
            most: Arc::default(),
            ends: Arc::default(),
        };
        let (seen, ends) = (server.seen.clone(), server.ends.clone());
        let (open, most) = (server.open.clone(), server.most.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let (folder, seen, ends) = (folder.clone(), seen.clone(), ends.clone());
                let (open, most) = (open.clone(), most.clone());
                std::thread::spawn(move || {
                    let Ok(mut stream) = stream else { return };
                    let Some((path, head)) = request(&mut stream) else { return };
                    let busy = path.ends_with(".pbk").then(|| Busy::new(open, &most));
                    let times = {
                        let mut seen = seen.lock().unwrap();
                        seen.push(head.clone());
                        seen.iter().filter(|h| h.starts_with(&format!("GET {path} "))).count()
                    };
                    // Whoever was killed does not listen any more.
                    let _ = answer(&mut stream, &folder, mode, &path, &head, times, &ends, busy);
                });
            }
        });
        server
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The heads of requests whose path ends so.
    pub(crate) fn seen(&self, end: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let of = |head: &&String| head.split(' ').nth(1).is_some_and(|path| path.ends_with(end));
        seen.iter().filter(of).cloned().collect()
    }

    /// How many bundles it was asked for at once, at the most.
    pub(crate) fn at_once(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// A bundle that is being sent.
struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn new(open: Arc<AtomicUsize>, most: &AtomicUsize) -> Self {
        most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Self(open)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The path and the head of a request.
fn request(stream: &mut TcpStream) -> Option<(String, String)> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 || head.len() > 8192 {
            return None;
        }
        if head.is_empty() && !byte[0].is_ascii_uppercase() {
            // Somebody who speaks TLS.
            let _ = write!(stream, "HTTP/1.1 400 Bad Request\r\n\r\n");
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    Some((head.split(' ').nth(1)?.to_owned(), head))
}

#[allow(clippy::too_many_arguments, reason = "all that a request is answered from")]
fn answer(
    stream: &mut TcpStream,
    folder: &std::path::Path,
    mode: Mode,
    path: &str,
    head: &str,
    times: usize,
    ends: &AtomicBool,
    busy: Option<Busy>,
) -> std::io::Result<()> {
    let say = |stream: &mut TcpStream, status: &str, more: &str, body: &[u8]| {
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n")?;
        stream.write_all(body)
    };
    let page = b"<!DOCTYPE html><html><body>Please log in</body></html>";
    let bundle = path.ends_with(".pbk");
    match mode {
        Mode::HtmlIndex => return say(stream, "200 OK", "Content-Type: text/plain\r\n", page),
        Mode::Html if bundle => return say(stream, "200 OK", "Content-Type: text/html; charset=utf-8\r\n", page),
        Mode::NotFound if bundle => return say(stream, "404 Not Found", "", page),
        Mode::Broken if bundle => return say(stream, "500 Internal Server Error", "", b"oops"),
        Mode::Redirect if !path.starts_with("/there/") => {
            return say(stream, "302 Found", &format!("Location: /there{path}\r\n"), b"");
        }
        Mode::Loop => return say(stream, "302 Found", &format!("Location: {path}\r\n"), b""),
        _ => {}
    }
    let Ok(mut bytes) = std::fs::read(folder.join(path.trim_start_matches("/there").trim_start_matches('/'))) else {
        return say(stream, "404 Not Found", "", b"");
    };
    let size = bytes.len();
    let changed = matches!(mode, Mode::Changing | Mode::ChangingTagged) && bundle && times > 1;
    if (mode == Mode::Flip && bundle) || changed {
        bytes[size - 1] ^= 1;
    }
    let field = |name: &str| {
        let line = head.lines().find(|l| l.to_ascii_lowercase().starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let tag = format!("\"{}\"", if changed { "new" } else { "old" });
    let tagged = mode == Mode::ChangingTagged;
    let stale = field("if-range").is_some_and(|asked| asked != tag);
    let from = field("range").and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let from = from.filter(|_| mode != Mode::NoRanges && !stale && bundle);
    let mut more = if tagged { format!("ETag: {tag}\r\n") } else { String::new() };
    let status = match from {
        Some(from) if from >= size => return say(stream, "416 Range Not Satisfiable", "", b""),
        Some(from) => {
            more += &format!("Content-Range: bytes {from}-{}/{size}\r\n", size - 1);
            "206 Partial Content"
        }
        None => "200 OK",
    };
    let mut body = bytes.split_off(from.unwrap_or(0));
    if !bundle {
        return say(stream, status, &more, &body);
    }
    let half = body.len() / 2;
    match mode {
        Mode::Longer => {
            body.extend(b"more");
            say(stream, status, &more, &body)
        }
        Mode::LongerChunked => {
            body.extend(b"more");
            write!(stream, "HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")?;
            write!(stream, "{:x}\r\n", body.len())?;
            stream.write_all(&body)?;
            stream.write_all(b"\r\n0\r\n\r\n")
        }
        Mode::Truncate | Mode::Stall | Mode::Changing | Mode::ChangingTagged
            if mode != Mode::Changing || times == 1 =>
        {
            let part = if tagged && times > 1 { body.len() } else { half };
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n", body.len())?;
            stream.write_all(&body[..part])?;
            stream.flush()?;
            while mode == Mode::Stall && !ends.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        }
        Mode::Slow => {
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n", body.len())?;
            let (start, end) = body.split_at(body.len() - 1);
            for piece in start.chunks(1 << 13) {
                stream.write_all(piece)?;
                std::thread::sleep(Duration::from_millis(1));
            }
            // With the last byte the other side may ask for the next bundle.
            drop(busy);
            stream.write_all(end)
        }
        _ => say(stream, status, &more, &body),
    }
}
