//! Where the members of a JSON object stand in its bytes, for changes that leave every other byte alone.

use std::ops::Range;

/// One member of an object.
pub(super) struct Member {
    /// Where its name begins.
    pub(super) start: usize,
    /// With its quotes.
    name: Range<usize>,
    pub(super) value: Range<usize>,
}

impl Member {
    /// Whether that is its name, however it is written.
    pub(super) fn is(&self, body: &[u8], name: &str) -> bool {
        let quoted = &body[self.name.clone()];
        let plain = quoted.len() == name.len() + 2 && &quoted[1..quoted.len() - 1] == name.as_bytes();
        plain
            || (quoted.contains(&b'\\')
                && serde_json::from_slice::<String>(quoted).is_ok_and(|decoded| decoded == name))
    }
}

/// The members of the object that begins at `at`; `None` for what is no complete object.
pub(super) fn members(body: &[u8], at: usize) -> Option<Vec<Member>> {
    if body.get(at) != Some(&b'{') {
        return None;
    }
    let mut found = Vec::new();
    let mut at = skip_space(body, at + 1);
    if body.get(at) == Some(&b'}') {
        return Some(found);
    }
    loop {
        let start = at;
        let name = start..skip_string(body, at)?;
        at = skip_space(body, name.end);
        if body.get(at) != Some(&b':') {
            return None;
        }
        let value = skip_space(body, at + 1);
        let value = value..skip_value(body, value)?;
        at = skip_space(body, value.end);
        found.push(Member { start, name, value });
        match body.get(at)? {
            b',' => at = skip_space(body, at + 1),
            b'}' => return Some(found),
            _ => return None,
        }
    }
}

/// Where the white space from `at` on ends.
pub(super) fn skip_space(body: &[u8], mut at: usize) -> usize {
    while matches!(body.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// From the opening quote to just behind the closing one.
fn skip_string(body: &[u8], at: usize) -> Option<usize> {
    if body.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += body.get(at..)?.iter().position(|b| matches!(b, b'"' | b'\\'))?;
        if body[at] == b'"' {
            return Some(at + 1);
        }
        at += 2; // a backslash and what it escapes
    }
}

/// Where the value that begins at `at` ends.
pub(super) fn skip_value(body: &[u8], at: usize) -> Option<usize> {
    match body.get(at)? {
        b'"' => skip_string(body, at),
        b'{' | b'[' => {
            let mut depth = 0usize;
            let mut at = at;
            loop {
                match body.get(at)? {
                    b'"' => {
                        at = skip_string(body, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let rest = &body[at..];
            let length = rest.iter().position(|b| b",}] \t\r\n".contains(b))?;
            (length > 0).then_some(at + length)
        }
    }
}
