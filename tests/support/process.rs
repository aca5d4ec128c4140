//! A child process that ends with its owner and whose words are kept.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use touchstone::clock::Stopwatch;

/// Lines kept of one child; the oldest go first.
const KEPT_LINES: usize = 4_000;

pub(crate) struct Process {
    name: String,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    pub(crate) fn spawn(name: &str, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|fault| panic!("{name} does not start: {fault}"));
        let lines = Arc::<Mutex<Vec<String>>>::default();
        keep(child.stdout.take().expect("piped"), Arc::clone(&lines));
        keep(child.stderr.take().expect("piped"), Arc::clone(&lines));
        Self { name: name.to_owned(), child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said so far, both streams.
    pub(crate) fn output(&self) -> String {
        self.lines.lock().expect("no reader panics").join("\n")
    }

    /// The first line that holds `part`, within `limit`; panics if it ends before.
    pub(crate) fn line_with(&mut self, part: &str, limit: Duration) -> String {
        let started = Stopwatch::start();
        loop {
            let found =
                self.lines.lock().expect("no reader panics").iter().find(|l| l.contains(part)).cloned();
            if let Some(line) = found {
                return line;
            }
            let ended = self.child.try_wait().expect("a child can be asked");
            assert!(
                ended.is_none(),
                "{} ended ({ended:?}) before it said {part:?}:\n{}",
                self.name,
                self.output()
            );
            assert!(
                started.elapsed() < limit,
                "{} did not say {part:?} in {limit:?}:\n{}",
                self.name,
                self.output()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Panics with its words if it has ended.
    pub(crate) fn assert_alive(&mut self) {
        if let Some(status) = self.child.try_wait().expect("a child can be asked") {
            panic!("{} ended ({status}):\n{}", self.name, self.output());
        }
    }

    /// Ends it as `kill -9` does, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }

    /// Asks it to end (SIGTERM) and waits; panics after `limit`.
    pub(crate) fn terminate(&mut self, limit: Duration) -> ExitStatus {
        let sent = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{} cannot be signalled", self.name);
        self.wait(limit)
    }

    /// Waits until it has ended by itself; panics after `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> ExitStatus {
        let started = Stopwatch::start();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                return status;
            }
            assert!(
                started.elapsed() < limit,
                "{} has not ended in {limit:?}:\n{}",
                self.name,
                self.output()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let words = self.output();
            let from = words.len().saturating_sub(6_000);
            let from = (from..words.len()).find(|&at| words.is_char_boundary(at)).unwrap_or(0);
            eprintln!("--- last words of {} ---\n{}", self.name, &words[from..]);
        }
    }
}

fn keep(stream: impl Read + Send + 'static, lines: Arc<Mutex<Vec<String>>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let mut kept = lines.lock().expect("no reader panics");
            if kept.len() == KEPT_LINES {
                kept.drain(..KEPT_LINES / 2);
            }
            kept.push(String::from_utf8_lossy(&line).into_owned());
        }
    });
}
