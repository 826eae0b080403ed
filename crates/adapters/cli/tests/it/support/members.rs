//! Archives made by hand: every field of a header, right checksums, random trees of members.

use std::collections::BTreeMap;

use syncline_testkit::Random;

const BLOCK_BYTES: usize = 512;

/// Magic and version.
pub const USTAR: &[u8; 8] = b"ustar\x0000";
pub const GNU: &[u8; 8] = b"ustar  \0";
pub const V7: &[u8; 8] = &[0; 8];

/// Ends of an archive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Blocks,
    /// In whole records of 10 KiB, as tar writes them.
    Record,
}

/// Fields of a header.
#[derive(Clone)]
pub struct Head<'a> {
    pub kind: u8,
    pub name: &'a [u8],
    pub link: &'a [u8],
    pub mode: u32,
    pub owner: u32,
    pub mtime: i64,
    /// In place of the data's.
    pub size: Option<u64>,
    pub magic: &'static [u8; 8],
    /// Numbers in base 256, which hold negative ones.
    pub binary: bool,
    /// The checksum takes bytes for signed.
    pub signed_sum: bool,
}

impl<'a> Head<'a> {
    pub fn new(kind: u8, name: &'a [u8]) -> Head<'a> {
        Head {
            kind,
            name,
            link: b"",
            mode: 0o644,
            owner: 0,
            mtime: 0,
            size: None,
            magic: USTAR,
            binary: false,
            signed_sum: false,
        }
    }

    /// The member, with its data in whole blocks.
    pub fn member(&self, data: &[u8]) -> Vec<u8> {
        let mut header = [0_u8; BLOCK_BYTES];
        header[..self.name.len()].copy_from_slice(self.name);
        header[100..107].copy_from_slice(format!("{:07o}", self.mode).as_bytes());
        for at in [108, 116] {
            header[at..at + 7].copy_from_slice(format!("{:07o}", self.owner).as_bytes());
        }
        let size = self.size.unwrap_or(data.len() as u64);
        for (at, number) in [(124, i64::try_from(size).unwrap()), (136, self.mtime)] {
            if self.binary || number < 0 {
                header[at..at + 12].fill(if number < 0 { 0xFF } else { 0 });
                header[at] |= 0x80;
                header[at + 4..at + 12].copy_from_slice(&number.to_be_bytes());
            } else {
                header[at..at + 11].copy_from_slice(format!("{number:011o}").as_bytes());
            }
        }
        header[148..156].fill(b' ');
        header[156] = self.kind;
        header[157..157 + self.link.len()].copy_from_slice(self.link);
        header[257..265].copy_from_slice(self.magic);
        header[329..336].copy_from_slice(b"0000005");
        header[337..344].copy_from_slice(b"0000001");
        let byte = |byte: &u8| {
            if self.signed_sum { i32::from(*byte as i8) } else { i32::from(*byte) }
        };
        let sum: i32 = header.iter().map(byte).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }
}

/// A plain member.
pub fn member(kind: u8, name: &[u8], link: &[u8], data: &[u8]) -> Vec<u8> {
    Head { link, ..Head::new(kind, name) }.member(data)
}

/// An extended header.
pub fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut data = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while rest + len.to_string().len() > len {
            len += 1;
        }
        data.extend_from_slice(format!("{len} {key}=").as_bytes());
        data.extend_from_slice(value);
        data.push(b'\n');
    }
    member(b'x', b"PaxHeader", b"", &data)
}

/// The whole archive.
pub fn archive(members: &[Vec<u8>], end: End) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.resize(bytes.len() + 2 * BLOCK_BYTES, 0);
    if end == End::Record {
        bytes.resize(bytes.len().next_multiple_of(20 * BLOCK_BYTES), 0);
    }
    bytes
}

/// Members of a tree that changes as it goes: later ones replace what earlier ones made.
pub fn random_archive(random: &mut Random) -> Vec<u8> {
    // Path, type: what is there while the archive is unpacked.
    let mut there: BTreeMap<String, u8> = BTreeMap::new();
    let mut members = Vec::new();
    for _ in 0..10 + random.index(30) {
        let dirs: Vec<String> =
            there.iter().filter(|(_, kind)| **kind == b'5').map(|(path, _)| path.clone()).collect();
        let parent = match random.index(dirs.len() + 1) {
            0 => String::new(),
            nr => format!("{}/", dirs[nr - 1]),
        };
        let long = if random.one_in(8) { "l".repeat(120) } else { String::new() };
        let path = format!("{parent}{}{long}", char::from(b'a' + random.index(6) as u8));
        if path.len() > 900 {
            continue;
        }
        let kind = b"001223566577DZ"[random.index(14)];
        let is_dir = matches!(kind, b'5' | b'D');
        // There are cases for that. In one archive with others GNU tar gives a file the attributes
        // of the empty directory that it replaced, and of a directory that is there twice each
        // program mixes both.
        if there.get(&path) == Some(&b'5') {
            continue;
        }
        let files: Vec<&String> =
            there.iter().filter(|(_, kind)| **kind != b'5').map(|(path, _)| path).collect();
        let link = match (kind, files.len()) {
            (b'1', 0) => continue,
            (b'1', len) => files[random.index(len)].clone(),
            // GNU tar keeps the first of several links of one name that lead out of the tree.
            (b'2', _) => ["nowhere", "a/b", "a/b/c/d", "f"][random.index(4)].to_owned(),
            _ => String::new(),
        };
        // bsdtar complains of a link to itself; there is a case for that.
        if link == path {
            continue;
        }
        members.push(one(random, kind, &path, &link));
        there.insert(path, if is_dir { b'5' } else { b'0' });
    }
    archive(&members, if random.one_in(2) { End::Blocks } else { End::Record })
}

/// One member in a random dialect.
fn one(random: &mut Random, kind: u8, path: &str, link: &str) -> Vec<u8> {
    let is_dir = matches!(kind, b'5' | b'D');
    let mut name = match random.index(4) {
        0 => format!("./{path}"),
        1 => path.replace('/', "//"),
        _ if is_dir => format!("{path}/"),
        _ => path.to_owned(),
    };
    let data = match kind {
        b'0' | b'7' | b'Z' => vec![random.bits() as u8; random.index(3) * random.index(3000)],
        b'D' => b"Ya\0Nb\0\0".to_vec(),
        _ => Vec::new(),
    };
    let mut front = Vec::new();
    let mut records: Vec<(&str, Vec<u8>)> = Vec::new();
    let gnu = random.one_in(2);
    let nul = |text: &str| [text.as_bytes(), b"\0"].concat();
    if name.len() > 100 {
        match gnu {
            true => front.extend(member(b'L', b"././@LongLink", b"", &nul(&name))),
            false => records.push(("path", name.clone().into_bytes())),
        }
        name.truncate(90);
    }
    let mut link = link.to_owned();
    if link.len() > 100 {
        match gnu {
            true => front.extend(member(b'K', b"././@LongLink", b"", &nul(&link))),
            false => records.push(("linkpath", link.clone().into_bytes())),
        }
        link.truncate(90);
    }
    if !gnu && random.one_in(3) {
        let time = ["-5", "1700000000.123456789", "0.25", "-1700000000"][random.index(4)];
        records.push(("mtime", time.as_bytes().to_vec()));
        records.push(("uid", b"3000000".to_vec()));
    }
    if !gnu && random.one_in(3) && !matches!(kind, b'1' | b'2' | b'3' | b'6') {
        records.push(("SCHILY.xattr.user.name", vec![b'\n', 0, random.bits() as u8]));
        let acl = "user::rwx,user:7:r-x,group::r--,mask::r-x,other::--x";
        records.push(("SCHILY.acl.access", acl.into()));
    }
    if !records.is_empty() {
        let records: Vec<(&str, &[u8])> = records.iter().map(|(k, v)| (*k, &v[..])).collect();
        front.extend(pax(&records));
    }
    // bsdtar guesses whether data follows a hard link.
    let unsized_kind = matches!(kind, b'2'..=b'6') && front.is_empty();
    let head = Head {
        link: link.as_bytes(),
        mode: [0o644, 0o755, 0o600, 0o1777, 0o751][random.index(5)],
        owner: random.index(3000) as u32,
        mtime: [0, 1_000_000_000, -86_400, 8_000_000_000][random.index(4)],
        size: (unsized_kind && random.one_in(4)).then_some(900),
        magic: if gnu { GNU } else { USTAR },
        ..Head::new(kind, name.as_bytes())
    };
    [front, head.member(&data)].concat()
}
