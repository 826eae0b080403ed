//! As much of D-Bus as asking services for properties needs, on any stream. The crate zbus would
//! bring an async runtime for a few calls a second.
//!
//! ```text
//!   0x00 AUTH EXTERNAL hex(uid) CRLF  ->  OK guid CRLF  ->  BEGIN CRLF     then messages:
//!   'l' type flags 1 | body bytes | serial | bytes of fields | fields, padded to 8 | body
//! ```
//! Source: the D-Bus specification, "Authentication Protocol", "Message Format", "Marshaling". We
//! write little endian and read both. A message of more than 64 KiB is an error. No signals are
//! asked for; what comes beside an answer is passed over, 1000 messages at most.

use std::io::{self, Read, Write};

/// Longest message that is read, in bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Longest line of the authentication.
const LINE_BYTES_MAX: usize = 512;
/// Messages that are passed over while an answer is awaited.
const OTHERS_MAX: usize = 1000;

/// Type of a message.
pub const METHOD_CALL: u8 = 1;
/// Type of an answer.
pub const METHOD_RETURN: u8 = 2;

const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SENDER: u8 = 7;
const SIGNATURE: u8 = 8;

fn broken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Message {
    /// [`METHOD_CALL`], [`METHOD_RETURN`], 3 (error) or 4 (signal).
    pub kind: u8,
    /// Its number, from its sender.
    pub serial: u32,
    /// Number of the call that it answers; 0: none.
    pub reply_serial: u32,
    /// Object.
    pub path: String,
    /// Interface.
    pub interface: String,
    /// Method.
    pub member: String,
    /// To whom.
    pub destination: String,
    /// From whom; the bus says it.
    pub sender: String,
    /// Types of the body.
    pub signature: String,
    /// Arguments, little endian.
    pub body: Vec<u8>,
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

/// Appends a string, or an object path, as they are within a message.
pub fn put_string(bytes: &mut Vec<u8>, text: &str) {
    pad(bytes, 4);
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.push(0);
}

fn put_field(bytes: &mut Vec<u8>, code: u8, kind: u8, text: &str) {
    if text.is_empty() {
        return;
    }
    pad(bytes, 8);
    bytes.extend([code, 1, kind, 0]);
    if kind == b'g' {
        bytes.push(text.len() as u8);
        bytes.extend(text.as_bytes());
        bytes.push(0);
    } else {
        put_string(bytes, text);
    }
}

impl Message {
    /// The bytes on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        put_field(&mut fields, PATH, b'o', &self.path);
        put_field(&mut fields, INTERFACE, b's', &self.interface);
        put_field(&mut fields, MEMBER, b's', &self.member);
        put_field(&mut fields, DESTINATION, b's', &self.destination);
        put_field(&mut fields, SIGNATURE, b'g', &self.signature);
        if self.reply_serial != 0 {
            pad(&mut fields, 8);
            fields.extend([REPLY_SERIAL, 1, b'u', 0]);
            fields.extend(self.reply_serial.to_le_bytes());
        }
        let mut bytes = vec![b'l', self.kind, 0, 1];
        bytes.extend((self.body.len() as u32).to_le_bytes());
        bytes.extend(self.serial.to_le_bytes());
        bytes.extend((fields.len() as u32).to_le_bytes());
        bytes.extend(fields);
        pad(&mut bytes, 8);
        bytes.extend(&self.body);
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// The stream's, or what came is no message.
    pub fn read(stream: &mut impl Read) -> io::Result<(Message, Endian)> {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let endian = match head[0] {
            b'l' => Endian::Little,
            b'B' => Endian::Big,
            _ => return Err(broken("no message of D-Bus")),
        };
        let word = |at: usize| endian.u32([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (body_bytes, fields_bytes) = (word(4) as usize, word(12) as usize);
        if body_bytes > MESSAGE_BYTES_MAX || fields_bytes > MESSAGE_BYTES_MAX {
            return Err(broken("a message of D-Bus that is too long"));
        }
        let mut rest = vec![0; fields_bytes.next_multiple_of(8) + body_bytes];
        stream.read_exact(&mut rest)?;
        let body = rest.split_off(fields_bytes.next_multiple_of(8));
        rest.truncate(fields_bytes);
        let mut message = Message { kind: head[1], serial: word(8), body, ..Message::default() };
        let fields = Fields { bytes: &rest, at: 0, endian };
        message.take_fields(fields).ok_or_else(|| broken("bad fields in a message of D-Bus"))?;
        Ok((message, endian))
    }

    fn take_fields(&mut self, mut fields: Fields<'_>) -> Option<()> {
        while fields.at < fields.bytes.len() {
            fields.align(8);
            let code = fields.byte()?;
            match fields.signature()?.as_str() {
                "u" if code == REPLY_SERIAL => self.reply_serial = fields.u32()?,
                "u" => {
                    fields.u32()?;
                }
                "g" => {
                    let text = fields.signature()?;
                    if code == SIGNATURE {
                        self.signature = text;
                    }
                }
                "s" | "o" => {
                    let text = fields.string()?;
                    match code {
                        PATH => self.path = text,
                        INTERFACE => self.interface = text,
                        MEMBER => self.member = text,
                        DESTINATION => self.destination = text,
                        SENDER => self.sender = text,
                        _ => {}
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }
}

/// The order of bytes in a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Endian {
    /// Lowest first.
    Little,
    /// Highest first.
    Big,
}

impl Endian {
    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        }
    }
}

/// A reader of values within a message.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    endian: Endian,
}

impl Fields<'_> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, length: usize) -> Option<&[u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.align(4);
        let endian = self.endian;
        let bytes = self.take(4)?.try_into().ok()?;
        Some(endian.u32(bytes))
    }

    fn text(&mut self, length: usize) -> Option<String> {
        let text = std::str::from_utf8(self.take(length)?).ok()?.to_owned();
        (self.byte()? == 0).then_some(text)
    }

    fn string(&mut self) -> Option<String> {
        let length = self.u32()? as usize;
        self.text(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = self.byte()?.into();
        self.text(length)
    }
}

/// A simple value of a property.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Value {
    /// `b`.
    Bool(bool),
    /// `u`.
    U32(u32),
    /// Any other type.
    Other,
}

fn variant(body: &[u8], endian: Endian) -> Option<Value> {
    let mut fields = Fields { bytes: body, at: 0, endian };
    Some(match fields.signature()?.as_str() {
        "u" => Value::U32(fields.u32()?),
        "b" => Value::Bool(fields.u32()? != 0),
        _ => Value::Other,
    })
}

/// A connection to a message bus.
pub struct Bus<S> {
    stream: S,
    serial: u32,
}

impl<S: Read + Write> Bus<S> {
    /// Says who we are, a user by number, and gets a name on the bus. The stream should have
    /// timeouts.
    ///
    /// # Errors
    /// The stream's; `PermissionDenied` if the bus does not want us.
    pub fn connect(mut stream: S, uid: u32) -> io::Result<Bus<S>> {
        let hex: String = uid.to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
        stream.write_all(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes())?;
        if !line(&mut stream)?.starts_with("OK ") {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.write_all(b"BEGIN\r\n")?;
        let mut bus = Bus { stream, serial: 0 };
        let own = "org.freedesktop.DBus";
        match bus.call(own, "/org/freedesktop/DBus", own, "Hello", ("", Vec::new()))? {
            Some(_) => Ok(bus),
            None => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Calls a method with arguments of the types of a signature. `None`: the answer is an error,
    /// as where there is no such service.
    ///
    /// # Errors
    /// The stream's, or what came is no message.
    pub fn call(
        &mut self,
        service: &str,
        path: &str,
        interface: &str,
        member: &str,
        (signature, body): (&str, Vec<u8>),
    ) -> io::Result<Option<(Message, Endian)>> {
        let serial = self.send(Message {
            kind: METHOD_CALL,
            path: path.to_owned(),
            interface: interface.to_owned(),
            member: member.to_owned(),
            destination: service.to_owned(),
            signature: signature.to_owned(),
            body,
            ..Message::default()
        })?;
        for _ in 0..OTHERS_MAX {
            let (message, endian) = self.receive()?;
            if message.reply_serial == serial {
                return Ok((message.kind == METHOD_RETURN).then_some((message, endian)));
            }
        }
        Err(broken("no answer among many messages of D-Bus"))
    }

    /// A property of an object. `None`: it is not there.
    ///
    /// # Errors
    /// As [`Bus::call`].
    pub fn property(
        &mut self,
        service: &str,
        path: &str,
        interface: &str,
        name: &str,
    ) -> io::Result<Option<Value>> {
        let mut body = Vec::new();
        put_string(&mut body, interface);
        put_string(&mut body, name);
        let properties = "org.freedesktop.DBus.Properties";
        let answer = self.call(service, path, properties, "Get", ("ss", body))?;
        Ok(answer.and_then(|(message, endian)| variant(&message.body, endian)))
    }

    /// Sends a message, which gets its number here.
    ///
    /// # Errors
    /// The stream's.
    pub fn send(&mut self, mut message: Message) -> io::Result<u32> {
        self.serial = self.serial.wrapping_add(1).max(1);
        message.serial = self.serial;
        self.stream.write_all(&message.encode())?;
        Ok(self.serial)
    }

    /// The next message.
    ///
    /// # Errors
    /// As [`Bus::call`].
    pub fn receive(&mut self) -> io::Result<(Message, Endian)> {
        Message::read(&mut self.stream)
    }
}

fn line(stream: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
        if line.len() > LINE_BYTES_MAX {
            return Err(broken("a long line from D-Bus"));
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_by_its_bytes() {
        let message = Message {
            kind: METHOD_CALL,
            serial: 7,
            path: "/a".into(),
            member: "M".into(),
            signature: "s".into(),
            body: vec![1, 0, 0, 0, b'x', 0],
            ..Message::default()
        };
        let bytes = message.encode();
        assert_eq!(bytes[..16], [b'l', 1, 0, 1, 6, 0, 0, 0, 7, 0, 0, 0, 39, 0, 0, 0]);
        assert_eq!(bytes[16..27], [1, 1, b'o', 0, 2, 0, 0, 0, b'/', b'a', 0]);
        assert_eq!(bytes.len(), 16 + 40 + 6);
        assert_eq!(Message::read(&mut &bytes[..]).unwrap(), (message, Endian::Little));
        for end in 0..bytes.len() {
            assert!(Message::read(&mut &bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn hostile_messages_are_errors() {
        let good = Message { kind: 2, reply_serial: 1, path: "/a".into(), ..Message::default() };
        let good = good.encode();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                // An error or some message: no panic, and no endless read.
                let _ = Message::read(&mut &bytes[..]);
            }
        }
        let mut long = good;
        long[4..8].fill(0xff);
        assert!(Message::read(&mut &long[..]).is_err());
    }

    #[test]
    fn values_of_both_orders() {
        let little = [1, b'u', 0, 0, 3, 0, 0, 0];
        assert_eq!(variant(&little, Endian::Little), Some(Value::U32(3)));
        let big = [1, b'b', 0, 0, 0, 0, 0, 1];
        assert_eq!(variant(&big, Endian::Big), Some(Value::Bool(true)));
        assert_eq!(variant(&[1, b's', 0], Endian::Little), Some(Value::Other));
        assert_eq!(variant(&little[..6], Endian::Little), None);
    }
}
