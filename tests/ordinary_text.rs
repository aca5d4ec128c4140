//! Hard text flags on ordinary text: 100,000 windows and more of documentation in many languages, source code,
//! minified code, JSON, tables, logs, names, base64 and hex, from Debian packages that `tests/run` unpacks and from
//! the project itself. Nothing in them was written for this test; what is flagged is a false alarm.
//!
//! `bash tests/run --test ordinary_text -- --nocapture` prints the count of each kind.

mod support;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use base64::Engine as _;
use support::root;
use touchstone::text::{Context, Finish, Prompt, Watch, language};
use touchstone::verdict::{FaultClass, Flag};

/// Bytes of one window: what a loop may last before it must be seen.
const WINDOW: usize = 512;
/// Windows of one kind at most, so that none outweighs the others.
const MOST_OF_A_KIND: usize = 5_000;
/// Windows altogether at least.
const WINDOWS: usize = 100_000;
/// False alarms altogether at most. Two were measured: a table that does repeat one row for 500 bytes, and a nonsense
/// poem.
const ALARMS: usize = 4;

/// Where `tests/run` unpacks Debian's packages, one folder each.
fn texts() -> PathBuf {
    let folder = root().join("target/test-texts");
    assert!(folder.exists(), "target/test-texts is missing: run `bash tests/run`, which unpacks it");
    folder
}

/// All files below a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// The bytes of a file, unpacked.
fn bytes(path: &Path) -> Vec<u8> {
    let raw = std::fs::read(path).expect("a file can be read");
    if path.extension().is_some_and(|e| e == "gz") {
        let mut plain = Vec::new();
        let read = flate2::read::MultiGzDecoder::new(&raw[..]).read_to_end(&mut plain);
        return if read.is_ok() { plain } else { Vec::new() };
    }
    raw
}

/// What a man page says, without most of roff's marks.
fn man_page(source: &str) -> String {
    const WITH_TEXT: [&str; 12] = ["B", "I", "BR", "RB", "IR", "RI", "BI", "IB", "SH", "SS", "SM", "SB"];
    let mut out = String::with_capacity(source.len());
    let mut in_layout = false; // of a table: from .TS to the line that ends with a stop
    for line in source.lines() {
        if line.starts_with(".TS") || line.starts_with(".T&") {
            in_layout = true;
            continue;
        }
        if in_layout {
            in_layout = !line.ends_with('.');
            continue;
        }
        if line.starts_with("'\\\"") || line == "T{" || line.starts_with("T}") {
            continue;
        }
        let line = match line.strip_prefix('.') {
            Some(request) => match request.split_once(' ') {
                Some((name, text)) if WITH_TEXT.contains(&name) => text,
                _ => continue,
            },
            None => line,
        };
        let mut rest = line;
        while let Some((before, after)) = rest.split_once('\\') {
            out.push_str(before);
            let mut chars = after.chars();
            rest = match chars.next() {
                Some('f') => chars.as_str().get(1..).unwrap_or_default(),
                Some('-') => {
                    out.push('-');
                    chars.as_str()
                }
                Some('(') => {
                    out.push('"');
                    chars.as_str().get(2..).unwrap_or_default()
                }
                Some('&' | '|' | '^' | ':' | '%' | '/') => chars.as_str(),
                Some('[') => chars.as_str().split_once(']').map_or("", |(_, rest)| rest),
                Some(other) => {
                    out.push(other);
                    chars.as_str()
                }
                None => "",
            };
        }
        out.push_str(rest);
        out.push('\n');
    }
    out
}

/// What kind of text a file of a package is; `None` for what is no ordinary text.
fn kind(package: &str, path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let place = path.to_string_lossy();
    let extension = path.extension().map(|e| e.to_string_lossy().into_owned()).unwrap_or_default();
    if package.starts_with("manpages") {
        let language = package.strip_prefix("manpages-").filter(|l| *l != "dev").unwrap_or("en");
        return (extension == "gz" && place.contains("/man/")).then(|| format!("prose {language}"));
    }
    let known = match package {
        "fortunes" | "fortunes-de" => {
            let quotes = place.contains("/games/fortunes/") && !["dat", "u8"].contains(&extension.as_str());
            if quotes { "quotations" } else { return None }
        }
        "fail2ban" if place.contains("/files/logs/") => "logs",
        "iso-codes" if extension == "json" => "json",
        // Test vectors are no text that anybody reads.
        "unicode-data" if extension == "txt" && !name.contains("Test") => "tables",
        "ieee-data" if extension == "csv" => "csv",
        "ieee-data" if extension == "txt" => "names",
        "miscfiles" if place.contains("/share/misc/") || place.contains("/share/dict/") => "names",
        "hwdata" if extension == "ids" => "names",
        "tzdata" if extension == "tab" => "tables",
        "ca-certificates" if extension == "crt" => "base64",
        _ if name == "this.py" => return None, // written in a cipher
        _ if name.ends_with(".min.js") || name.ends_with(".min.css") => "minified",
        _ => match extension.as_str() {
            "py" => "python",
            "rb" => "ruby",
            "pm" | "pl" => "perl",
            "erl" | "hrl" => "erlang",
            "js" => "javascript",
            "css" => "css",
            "rs" => "rust",
            "md" | "toml" | "yml" => "project",
            "json" | "jsonl" => "json",
            "sh" => "shell",
            _ if place.contains("/include/c++/") => "c++",
            _ => return None,
        },
    };
    Some(known.to_owned())
}

/// The windows of each kind, evenly taken from all its text.
fn windows() -> &'static BTreeMap<String, Vec<String>> {
    static ALL: OnceLock<BTreeMap<String, Vec<String>>> = OnceLock::new();
    ALL.get_or_init(read_windows)
}

fn read_windows() -> BTreeMap<String, Vec<String>> {
    let mut text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |kind: String, whole: &str| {
        let windows = text.entry(kind).or_default();
        let mut rest = whole;
        while rest.len() >= WINDOW {
            let end = (WINDOW..).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
            windows.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
    };
    let packages = std::fs::read_dir(texts()).expect("a folder").flatten().map(|e| e.path());
    let mut packages: Vec<PathBuf> = packages.collect();
    packages.sort();
    let own = ["src", "tests", "golden", "deploy"].map(|f| root().join(f));
    let mut binary = Vec::new();
    let broken = [root().join("tests/fixtures"), root().join("src/text")]; // on purpose
    for package in packages.iter().chain(&own) {
        let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for path in files(package).into_iter().filter(|path| !broken.iter().any(|b| path.starts_with(b))) {
            if path.extension().is_some_and(|e| e == "gz") && binary.len() < (6 << 20) {
                binary.extend(std::fs::read(&path).expect("a file can be read"));
            }
            let Some(kind) = kind(&name, &path) else { continue };
            let Ok(whole) = String::from_utf8(bytes(&path)) else { continue };
            if kind.starts_with("prose") { add(kind, &man_page(&whole)) } else { add(kind, &whole) }
        }
    }
    let base64 = base64::engine::general_purpose::STANDARD.encode(&binary[..3 << 20]);
    let lines: Vec<&str> =
        base64.as_bytes().chunks(76).map(|l| std::str::from_utf8(l).unwrap_or_default()).collect();
    add("base64".to_owned(), &lines.join("\n"));
    let dump: String = binary[3 << 20..]
        .chunks(16)
        .take(120_000)
        .enumerate()
        .map(|(i, line)| {
            let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
            format!("{:08x}  {}\n", i * 16, hex.join(" "))
        })
        .collect();
    add("hex".to_owned(), &dump);
    for windows in text.values_mut() {
        let n = windows.len();
        if n > MOST_OF_A_KIND {
            *windows = (0..MOST_OF_A_KIND).map(|i| windows[i * n / MOST_OF_A_KIND].clone()).collect();
        }
    }
    text
}

/// Hard flags of an answer that is this text.
fn hard(text: &str) -> Vec<Flag> {
    let prompt = Arc::new(Prompt::new("Please go on.", []));
    let mut watch = Watch::new(&Context { prompt, ..Context::default() });
    watch.push(text);
    let flags = watch.finish(Finish::default()).flags;
    flags.iter().filter(|f| f.class() == FaultClass::QualityHard).collect()
}

#[test]
fn hard_flags_are_silent_on_ordinary_text() {
    let kinds = windows();
    let all: Vec<(&str, &str)> = kinds
        .iter()
        .flat_map(|(kind, windows)| windows.iter().map(|w| (kind.as_str(), w.as_str())))
        .collect();
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(&str, &str, Vec<Flag>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get().min(4)) {
            scope.spawn(|| {
                while let Some((kind, window)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let flags = hard(window);
                    if !flags.is_empty() {
                        found.lock().expect("nobody panics").push((kind, window, flags));
                    }
                }
            });
        }
    });
    let found = found.into_inner().expect("nobody panics");
    for (kind, windows) in kinds {
        let own = found.iter().filter(|(k, ..)| k == kind).count();
        println!("{kind:>12} {:>6} windows {own:>3} flagged", windows.len());
    }
    println!("{:>12} {:>6} windows {:>3} flagged", "all", all.len(), found.len());
    for (kind, window, flags) in &found {
        println!("--- {kind} {flags:?}\n{window}");
    }
    assert!(all.len() >= WINDOWS, "only {} windows", all.len());
    let languages = kinds.keys().filter(|k| k.starts_with("prose")).count();
    assert!(languages >= 6, "only {languages} languages");
    assert!(found.len() <= ALARMS, "{} false alarms in {} windows", found.len(), all.len());
}

/// To an English question code, tables, names and English documentation are no answer in another language, and
/// documentation in another one is. What is left untranslated in it, and what is hardly prose, is not.
#[test]
fn only_prose_in_another_language_is_taken_for_an_answer_in_one() {
    const SEEN_PERCENT: usize = 65;
    let prompt = Prompt::new("Please explain to me what this is for and how I should use it.", []);
    let (mut alarms, mut poor) = (Vec::new(), Vec::new());
    for (kind, windows) in windows() {
        let foreign = kind.strip_prefix("prose ").filter(|language| *language != "en");
        if foreign.is_some_and(|language| ["ja", "ru", "uk", "zh"].contains(&language))
            || kind == "quotations"
        {
            continue; // scripts tell, or German stands among English
        }
        let flagged: Vec<&String> =
            windows.iter().filter(|window| language::is_other_than_asked(&prompt, window)).collect();
        if let Some(language) = foreign {
            println!("{kind:>12} {:>6} windows {:>5} seen", windows.len(), flagged.len());
            if ["de", "fr", "nl"].contains(&language) && flagged.len() * 100 < windows.len() * SEEN_PERCENT {
                poor.push(kind);
            }
        } else {
            println!("{kind:>12} {:>6} windows {:>5} false", windows.len(), flagged.len());
            alarms.extend(flagged);
        }
    }
    assert!(alarms.is_empty(), "{} false alarms, as {}", alarms.len(), alarms[0]);
    assert!(poor.is_empty(), "{poor:?}");
}
