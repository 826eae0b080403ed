//! The parts of a line of strace.

use crate::trace::import::text::scaled;

/// Thread, start and the rest of a line.
pub(super) struct Head<'a> {
    pub(super) thread: u32,
    pub(super) time_ns: u64,
    pub(super) text: &'a str,
}

pub(super) fn head(line: &str) -> Option<Head<'_>> {
    let line = line.trim_start();
    let (thread, rest) = match line.strip_prefix("[pid") {
        Some(rest) => {
            let (pid, rest) = rest.split_once(']')?;
            (pid.trim().parse().ok()?, rest)
        }
        None => {
            let (first, rest) = line.split_once(' ')?;
            // With one process and no -o there is no number.
            if first.contains('.') { (0, line) } else { (first.parse().ok()?, rest) }
        }
    };
    let (stamp, text) = rest.trim_start().split_once(' ')?;
    if !stamp.contains('.') {
        return None;
    }
    let time_ns = scaled(stamp, 1_000_000_000)?;
    let text = text.trim_start();
    // With -r and -ttt both, the time since the line before follows.
    let text =
        text.strip_prefix("(+").and_then(|rest| rest.split_once(')')).map_or(text, |of| of.1);
    Some(Head { thread, time_ns, text: text.trim() })
}

/// `697 12:34:56.123456 call(`: what -t and -tt write.
pub(super) fn has_time_of_day(line: &str) -> bool {
    let is_digits = |word: &str| word.len() == 2 && word.bytes().all(|b| b.is_ascii_digit());
    let mut words = line.split_whitespace().skip_while(|word| !word.contains(':')).take(2);
    let time = words.next().and_then(|word| {
        let mut parts = word.split(['.', ':']);
        Some((parts.next()?, parts.next()?, parts.next()?))
    });
    let call = words.next().is_some_and(|word| looks_like_call(word) || word == "<...");
    call && time.is_some_and(|(h, m, s)| is_digits(h) && is_digits(m) && is_digits(s))
}

pub(super) fn looks_like_call(text: &str) -> bool {
    let name = text.split('(').next().unwrap_or_default();
    let word = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (word && text.contains('(')) || ["+++ ", "--- ", "<... "].iter().any(|s| text.starts_with(s))
}

/// The first half of a call whose end comes later.
pub(super) fn unfinished(text: &str) -> Option<&str> {
    text.strip_suffix("<unfinished ...>").map(str::trim_end)
}

/// The second half.
pub(super) fn resumed(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("<... ")?;
    rest.split_once(" resumed>").map(|(_, rest)| rest)
}

/// A whole call.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    pub(super) args: Vec<&'a str>,
    /// Its result, negative errno if it failed; none for `?`.
    pub(super) result: Option<i64>,
    pub(super) latency_ns: Option<u64>,
}

pub(super) fn call(text: &str) -> Option<Call<'_>> {
    let (name, rest) = text.split_once('(')?;
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let (args, rest) = arguments(rest)?;
    let answer = rest.trim_start().strip_prefix('=')?.trim();
    let latency_ns = answer.rsplit_once('<').and_then(|(_, end)| {
        end.strip_suffix('>').and_then(|seconds| scaled(seconds, 1_000_000_000))
    });
    let mut words = answer.split([' ', '<']);
    let first = words.next()?;
    let value: Option<i64> = match first.strip_prefix("0x") {
        Some(hex) => {
            u64::from_str_radix(hex, 16).ok().map(|n| i64::try_from(n).unwrap_or(i64::MAX))
        }
        None => first.parse().ok(),
    };
    let result = match value {
        Some(-1) => Some(-errno(words.next().unwrap_or_default())),
        other => other,
    };
    Some(Call { name, args, result, latency_ns })
}

/// Splits at the commas outside of strings, brackets and paths of descriptors, up to the closing
/// parenthesis; what follows that is the second part.
fn arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let bytes = text.as_bytes();
    let (mut args, mut start, mut depth, mut at) = (Vec::new(), 0, 0u32, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = after_string(bytes, at)?,
            b'<' if at > 0 && (bytes[at - 1].is_ascii_digit() || bytes[at - 1] == b'D') => {
                // A path of a descriptor; a shift such as 1<<3 is none.
                if bytes.get(at + 1) != Some(&b'<') {
                    at += bytes[at..].iter().position(|b| *b == b'>')?;
                } else {
                    at += 1;
                }
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                let last = text.get(start..at)?.trim();
                if !last.is_empty() {
                    args.push(last);
                }
                return Some((args, text.get(at + 1..)?));
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                args.push(text.get(start..at)?.trim());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The place of the closing quote of the string that starts at `at`.
fn after_string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at),
            _ => at += 1,
        }
    }
}

/// A descriptor with its path: `3</data/a>`, `AT_FDCWD</data>`.
pub(super) fn descriptor(arg: &str) -> Option<(i64, String)> {
    let (number, path) = match arg.split_once('<') {
        Some((number, path)) => {
            let path = path.rsplit_once('>').map_or(path, |(path, _)| path);
            (number, unescape(path))
        }
        None => (arg, String::new()),
    };
    let number = if number == "AT_FDCWD" { -100 } else { number.parse().ok()? };
    Some((number, path))
}

/// The text of a quoted string.
pub(super) fn string(arg: &str) -> Option<String> {
    let inner = arg.strip_prefix('"')?;
    let end = inner.rfind('"')?;
    Some(unescape(&inner[..end]))
}

/// Resolves `\n`, `\"`, `\303`, `\x3c`.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let (digits, radix) = match bytes.get(at) {
            Some(b'x') => {
                at += 1;
                (2, 16)
            }
            Some(b'0'..=b'7') => (3, 8),
            Some(letter) => {
                out.push(match letter {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'f' => 12,
                    b'v' => 11,
                    other => *other,
                });
                at += 1;
                continue;
            }
            None => break,
        };
        let mut value = 0u32;
        for _ in 0..digits {
            let Some(digit) = bytes.get(at).and_then(|b| char::from(*b).to_digit(radix)) else {
                break;
            };
            value = value * radix + digit;
            at += 1;
        }
        out.push((value & 0xFF) as u8);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The value of a field of a printed structure: `st_size=123`.
pub(super) fn field<'a>(arg: &'a str, name: &str) -> Option<&'a str> {
    let at = arg.find(name)? + name.len();
    let rest = arg.get(at..)?;
    rest.split([',', '}', '|']).next().map(str::trim)
}

/// Linux's number of an error; EIO for names that are not listed.
fn errno(name: &str) -> i64 {
    const LIST: [(&str, i64); 22] = [
        ("EPERM", 1),
        ("ENOENT", 2),
        ("EINTR", 4),
        ("EIO", 5),
        ("EBADF", 9),
        ("EAGAIN", 11),
        ("ENOMEM", 12),
        ("EACCES", 13),
        ("EBUSY", 16),
        ("EEXIST", 17),
        ("EXDEV", 18),
        ("ENODEV", 19),
        ("ENOTDIR", 20),
        ("EISDIR", 21),
        ("EINVAL", 22),
        ("ENOTTY", 25),
        ("EFBIG", 27),
        ("ENOSPC", 28),
        ("ESPIPE", 29),
        ("EROFS", 30),
        ("ENOTEMPTY", 39),
        ("EOPNOTSUPP", 95),
    ];
    LIST.iter().find(|(known, _)| *known == name).map_or(5, |(_, number)| *number)
}
