//! The house rules that a compiler does not know: who may use whom, what the pure parts may name, how
//! long a file may be. It reads `src` as text, with comments, literals and `tests` modules left out.
//!
//! One table says it all: each top module has a layer and the top modules that it may name as
//! `crate::…`. Words may be used by all; see the picture in `src/lib.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of more code lines than this must say why in a module doc line `//! Length: …`.
const LONG: usize = 400;
/// No file is longer, whatever its reason.
const HARD: usize = 600;
/// `main.rs` parses, starts, maps the error; nothing else fits.
const MAIN: usize = 80;

/// From the lowest to the highest: each may use the words, and what the table grants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Words,
    Decide,
    Act,
    Run,
    Assemble,
}
use Layer::{Act, Assemble, Decide, Run, Words};

/// Every top module: its layer, and the neighbours that it may name beside the words. What runs may name
/// whatever acts or decides; what assembles may name everything.
const TABLE: &[(&str, Layer, &[&str])] = &[
    ("baseline", Words, &[]),
    ("clock", Words, &[]),
    ("event", Words, &[]),
    ("prompt", Words, &[]),
    ("sample", Words, &[]),
    ("units", Words, &[]),
    ("verdict", Words, &[]),
    // pure, synchronous, deterministic
    ("stats", Decide, &[]),
    ("wire", Decide, &[]),
    ("text", Decide, &[]),
    ("judge", Decide, &["stats", "text", "wire"]),
    ("detect", Decide, &["stats"]),
    ("health", Decide, &["detect"]),
    ("breaker", Decide, &["health"]),
    ("chaos", Decide, &[]),
    ("retry", Decide, &["stats"]),
    ("permits", Decide, &["stats"]),
    ("spend", Decide, &[]),
    ("plan", Decide, &[]),
    ("schedule", Decide, &[]),
    // IO, one subject each, never each other
    ("upstream", Act, &["chaos", "wire"]),
    ("embed", Act, &["stats"]),
    ("golden", Act, &[]),
    ("cache", Act, &[]),
    ("store", Act, &[]),
    ("shared", Act, &[]),
    ("metrics", Act, &[]),
    // loops; they meet in the gate and at the monitor's door
    ("gate", Run, &[]),
    ("monitor", Run, &["gate"]),
    ("proxy", Run, &["gate", "monitor"]),
    ("prober", Run, &["gate", "monitor"]),
    ("admin", Run, &["gate", "monitor", "prober"]),
    ("sim", Run, &[]),
    ("config", Assemble, &[]),
    ("app", Assemble, &[]),
    ("commands", Assemble, &[]),
    ("cli", Assemble, &[]),
];

/// What the pure layers may not name: IO, the runtime, logs, chance and the clock belong to the edge.
const IMPURE: &[&str] = &[
    "tokio",
    "axum",
    "hyper",
    "hyper_util",
    "reqwest",
    "rustls",
    "rusqlite",
    "redis",
    "metrics",
    "metrics_exporter_prometheus",
    "tracing",
    "candle_core",
    "tokenizers",
    "getrandom",
    "rand",
    "std::fs",
    "std::net",
    "std::env",
    "std::thread",
    "std::process",
    "std::time::Instant",
    "std::time::SystemTime",
    "Instant::now",
    "SystemTime::now",
    "SystemClock",
    "Stopwatch",
    "fastrand::Rng::new",
    "fastrand::u64",
    "fastrand::u32",
    "fastrand::usize",
    "fastrand::f64",
    "fastrand::f32",
    "fastrand::bool",
    "fastrand::shuffle",
    "fastrand::choice",
];

fn row(module: &str) -> Option<&'static (&'static str, Layer, &'static [&'static str])> {
    TABLE.iter().find(|(name, ..)| *name == module)
}

fn may_use(user: &str, used: &str) -> bool {
    let (Some((_, layer, neighbours)), Some((_, below, _))) = (row(user), row(used)) else {
        return false;
    };
    user == used
        || *below == Words
        || neighbours.contains(&used)
        || (*layer == Run && *below < Run)
        || *layer == Assemble
}

/// Everything wrong with one file; `path` is relative to `src`.
fn faults(path: &str, source: &str) -> Vec<String> {
    let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let module = parts[0];
    let code = without_tests(&blank_comments_and_literals(source));
    let mut found = Vec::new();

    if module != "main" && module != "lib" {
        let Some((_, layer, _)) = row(module) else {
            return vec![format!("src/{path}: `{module}` has no row in the table of tests/layers.rs")];
        };
        for (line, used) in crate_paths(&code) {
            if row(&used).is_some() && !may_use(module, &used) {
                found.push(format!("src/{path}:{line}: `{module}` may not use `{used}`"));
            }
        }
        for (line, ups) in super_chains(&code) {
            if ups >= parts.len() {
                found.push(format!("src/{path}:{line}: `super` reaches the crate's root; write `crate::`"));
            }
        }
        if *layer <= Decide && module != "clock" {
            for name in IMPURE {
                for line in lines_naming(&code, name) {
                    found.push(format!("src/{path}:{line}: the pure module `{module}` names `{name}`"));
                }
            }
        }
    }
    found.extend(length_fault(path, source, &code));
    found
}

fn length_fault(path: &str, source: &str, code: &str) -> Option<String> {
    let code_lines = code.lines().filter(|line| !line.trim().is_empty()).count();
    // Comments count for the hard limit; what belongs to a tests module counts for none.
    let tests = source.lines().count().saturating_sub(kept_lines(source));
    let all = source.lines().count() - tests;
    let reason = source.lines().any(|line| line.starts_with("//! Length: "));
    if path == "main.rs" && all > MAIN {
        return Some(format!("src/main.rs: {all} lines, at most {MAIN}"));
    }
    if all > HARD {
        return Some(format!("src/{path}: {all} lines without its tests, at most {HARD}"));
    }
    (code_lines > LONG && !reason).then(|| {
        format!("src/{path}: {code_lines} lines of code; beyond {LONG} the module doc gives a reason: `//! Length: …`")
    })
}

/// Lines of the file that do not belong to a `#[cfg(test)]` item.
fn kept_lines(source: &str) -> usize {
    let blanked = blank_comments_and_literals(source);
    let spans = test_spans(&blanked);
    let mut at = 0;
    let mut kept = 0;
    for line in blanked.split_inclusive('\n') {
        if !spans.iter().any(|&(from, to)| at >= from && at < to) {
            kept += 1;
        }
        at += line.len();
    }
    kept
}

/// The source with comments turned to spaces and literals to `"`, line ends kept, so that what is left
/// can be searched for words.
fn blank_comments_and_literals(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    let blank = |out: &mut Vec<u8>, from: usize, to: usize, with: u8| {
        out.extend(bytes[from..to].iter().map(|&b| if b == b'\n' { b'\n' } else { with }));
    };
    while i < bytes.len() {
        let rest = &source.as_bytes()[i..];
        let after_word = i > 0 && (bytes[i - 1].is_ascii_alphanumeric() || bytes[i - 1] == b'_');
        let (end, with) = if rest.starts_with(b"//") {
            (i + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()), b' ')
        } else if rest.starts_with(b"/*") {
            (i + block_comment(rest), b' ')
        } else if rest[0] == b'"' {
            (i + string(rest), b'"')
        } else if let Some(length) = (!after_word).then(|| raw_string(rest)).flatten() {
            (i + length, b'"')
        } else if let Some(length) = character(rest) {
            (i + length, b'"')
        } else {
            out.push(bytes[i]);
            i += 1;
            continue;
        };
        blank(&mut out, i, end, with);
        i = end;
    }
    String::from_utf8(out).expect("only whole literals and comments were replaced, by ASCII")
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut i = 0;
    while i < rest.len() {
        if rest[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if rest[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

/// Length of a raw (byte) string that begins here.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = usize::from(rest[0] == b'b' || rest[0] == b'c');
    if rest.get(prefix) != Some(&b'r') {
        return None;
    }
    let hashes = rest[prefix + 1..].iter().take_while(|&&b| b == b'#').count();
    let open = prefix + 1 + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &rest[open + 1..];
    let end = body.windows(close.len()).position(|window| window == close)?;
    Some(open + 1 + end + close.len())
}

/// Length of a character literal that begins here; a lifetime is none.
fn character(rest: &[u8]) -> Option<usize> {
    if rest[0] != b'\'' {
        return None;
    }
    if rest.get(1) == Some(&b'\\') {
        return rest[3..].iter().position(|&b| b == b'\'').map(|at| at + 4);
    }
    let next = &rest[1..rest.len().min(6)];
    let text = match std::str::from_utf8(next) {
        Ok(text) => text,
        Err(fault) => std::str::from_utf8(&next[..fault.valid_up_to()]).unwrap_or_default(),
    };
    let width = text.chars().next()?.len_utf8();
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// Byte spans of the items under `#[cfg(test)]`, in a source without comments and literals.
fn test_spans(code: &str) -> Vec<(usize, usize)> {
    const MARK: &str = "#[cfg(test)]";
    let mut spans = Vec::new();
    let mut from = 0;
    while let Some(at) = code[from..].find(MARK) {
        let start = from + at;
        let mut depth = 0_usize;
        let mut end = code.len();
        for (offset, byte) in code.bytes().enumerate().skip(start + MARK.len()) {
            match byte {
                b'{' | b'[' | b'(' => depth += 1,
                b'}' | b']' | b')' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 && byte == b'}' {
                        end = offset + 1;
                        break;
                    }
                }
                b';' if depth == 0 => {
                    end = offset + 1;
                    break;
                }
                _ => {}
            }
        }
        spans.push((start, end));
        from = end;
    }
    spans
}

fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    for (start, end) in test_spans(code).into_iter().rev() {
        let lines: String = code[start..end].chars().filter(|&c| c == '\n').collect();
        out.replace_range(start..end, &lines);
    }
    out
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where `word` stands as a whole path segment (not as the tail of a longer name).
fn occurrences<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).map(|i| code.as_bytes()[i]);
        let after = code.as_bytes().get(at + word.len());
        !before.is_some_and(is_word) && !after.copied().is_some_and(is_word)
    })
}

/// The first segment after each `crate::`, also in `crate::{a, b::c}`.
fn crate_paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in occurrences(code, "crate") {
        let Some(rest) = code[at + "crate".len()..].trim_start().strip_prefix("::") else { continue };
        let rest = rest.trim_start();
        let line = line_of(code, at);
        let Some(group) = rest.strip_prefix('{') else {
            found.push((line, leading_word(rest)));
            continue;
        };
        let mut depth = 0;
        let mut item = String::new();
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => found.push((line, leading_word(&std::mem::take(&mut item)))),
                c if depth == 0 => item.push(c),
                _ => {}
            }
        }
        found.push((line, leading_word(&item)));
    }
    found
}

fn leading_word(text: &str) -> String {
    text.trim_start().chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect()
}

/// Each run of `super::super::…` with its length.
fn super_chains(code: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut inside_until = 0;
    for at in occurrences(code, "super") {
        if at < inside_until || !code[at..].starts_with("super::") {
            continue;
        }
        let mut ups = 0;
        let mut end = at;
        while code[end..].starts_with("super::") {
            ups += 1;
            end += "super::".len();
        }
        inside_until = end;
        found.push((line_of(code, at), ups));
    }
    found
}

/// Lines on which the outside name stands: as a path's beginning, an import, or a macro's owner.
fn lines_naming(code: &str, name: &str) -> Vec<usize> {
    occurrences(code, name)
        .filter(|&at| {
            // A field, a method or another module's item of that name is not the crate of that name.
            let before = code[..at].trim_end();
            let after = code[at + name.len()..].trim_start();
            let path = name.contains("::") || after.starts_with("::");
            let import = before.ends_with("use");
            let tail_of_path = before.ends_with("::") && !name.contains("::");
            let bare_type = name.starts_with(char::is_uppercase);
            (path || import || bare_type) && (!tail_of_path || bare_type)
        })
        .map(|at| line_of(code, at))
        .collect()
}

fn sources(dir: &Path, into: &mut BTreeMap<String, String>, root: &Path) {
    for entry in fs::read_dir(dir).expect("src is readable").flatten() {
        let path: PathBuf = entry.path();
        if path.is_dir() {
            sources(&path, into, root);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).expect("below src").to_string_lossy().replace('\\', "/");
            into.insert(name, fs::read_to_string(&path).expect("a source is UTF-8"));
        }
    }
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

#[test]
fn every_source_keeps_to_its_layer_and_length() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    sources(&root, &mut files, &root);
    assert!(files.len() > 20, "src was not found");
    let found: Vec<String> = files
        .iter()
        .filter(|(path, _)| !is_test_file(path))
        .flat_map(|(path, source)| faults(path, source))
        .collect();
    assert!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_map_in_lib_rs_names_every_module_of_its_layer() {
    let lib = include_str!("../src/lib.rs");
    let declared: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    for module in &declared {
        assert!(row(module).is_some(), "`{module}` has no row in the table");
        assert!(
            lib.lines().any(|line| line.starts_with("//!") && line.contains(&format!("`{module}`"))),
            "the map in src/lib.rs does not name `{module}`"
        );
    }
}

#[test]
fn a_forbidden_neighbour_is_found_however_it_is_named() {
    for source in [
        "use crate::store::Store;",
        "use crate::{clock::Timestamp, store};",
        "use crate::{\n    verdict::{Flag, FlagSet},\n    store::Store,\n};",
        "fn f() { crate::store::open(); }",
    ] {
        assert_eq!(faults("breaker.rs", source).len(), 1, "{source}");
        assert_eq!(faults("breaker/arm.rs", source).len(), 1, "{source}");
        assert!(faults("monitor.rs", source).is_empty(), "what runs may use what acts: {source}");
    }
    assert_eq!(faults("store.rs", "use crate::embed::Embedder;").len(), 1, "act never uses act");
    assert_eq!(
        faults("embed.rs", "use crate::config::Config;").len(),
        1,
        "no module reads the configuration"
    );
    assert_eq!(faults("detect/rule.rs", "use super::super::store::Store;").len(), 1, "a way around");
    assert!(faults("detect/rule.rs", "use super::Finding;").is_empty());
    assert_eq!(faults("novel.rs", "").len(), 1, "a new module chooses its layer");
}

#[test]
fn the_pure_layers_name_no_runtime_no_log_no_chance_and_no_clock() {
    for source in [
        "use tokio::sync::mpsc;",
        "fn f() { tracing::warn!(1); }",
        "fn f() -> u64 { std::time::Instant::now().elapsed() }",
        "use std::fs;",
        "use std::time::SystemTime;",
        "fn f() -> f64 { fastrand::f64() }",
    ] {
        assert!(!faults("breaker.rs", source).is_empty(), "{source}");
        assert!(faults("monitor.rs", source).is_empty(), "{source}");
    }
    for source in [
        "struct S { metrics: u32 } fn f(s: &S) -> u32 { s.metrics }",
        "fn f(seed: u64) -> f64 { fastrand::Rng::with_seed(seed).f64() }",
        "/// As `tokio::time` does.\nfn f() -> &'static str { \"tokio::spawn\" } // tokio::spawn",
        "#[cfg(test)]\nmod tests {\n    use std::fs;\n    fn f() { let _ = \"}\"; }\n}",
    ] {
        assert!(faults("breaker.rs", source).is_empty(), "{source}: {:?}", faults("breaker.rs", source));
    }
}

#[test]
fn length_leaves_tests_out_and_asks_for_a_reason() {
    let code = "let x = 1;\n";
    assert!(faults("breaker.rs", &code.repeat(LONG)).is_empty());
    assert_eq!(faults("breaker.rs", &code.repeat(LONG + 1)).len(), 1);
    let reason = format!("//! Length: one table.\n{}", code.repeat(LONG + 1));
    assert!(faults("breaker.rs", &reason).is_empty());
    assert_eq!(faults("breaker.rs", &format!("//! Length: one table.\n{}", code.repeat(HARD))).len(), 1);
    let tests = format!("{code}#[cfg(test)]\nmod tests {{\n{}}}\n", code.repeat(2 * HARD));
    assert!(faults("breaker.rs", &tests).is_empty());
    assert_eq!(faults("main.rs", &code.repeat(MAIN + 1)).len(), 1);
}

#[test]
fn literals_comments_and_lifetimes_are_told_apart() {
    let source = "fn f<'a>(x: &'a str) -> char { /* crate::store /* nested */ */ let _ = r#\"crate::\"store\"#; '\\'' }";
    let code = blank_comments_and_literals(source);
    assert!(!code.contains("store"), "{code}");
    assert!(code.contains("fn f<'a>(x: &'a str) -> char"), "{code}");
    assert_eq!(code.len(), source.len());
    let code = blank_comments_and_literals("let c = '\"'; let d = 'é'; crate::store::x(b'\"', b\"\\\"\")");
    assert_eq!(crate_paths(&code), [(1, "store".to_owned())], "{code}");
}
