//! Every structure of images made by stock mke2fs: it decodes, its checksum matches, and encoding
//! what was decoded changes no byte.

use crate::common;
use crate::common::{Image, KINDS, block, mke2fs, open, skip};
use syncline_ondisk::bytes::le32;
use syncline_ondisk::extent::{Node, NodeLimits};
use syncline_ondisk::group::{self, BLOCK_UNINIT, GroupCsum, INODE_UNINIT};
use syncline_ondisk::htree::NodeKind;
use syncline_ondisk::inode::flags;
use syncline_ondisk::jbd2::JournalSuperblock;
use syncline_ondisk::{
    Geometry, GroupDesc, Inode, Superblock, Timestamp, bitmap, blockmap, checksum, dir, extent,
    htree, mmp, orphan_file, xattr,
};

struct Fs {
    image: Image,
    bytes: Vec<u8>,
    sb: Superblock,
    geo: Geometry,
    csum: GroupCsum,
}

impl Fs {
    fn new(image: Image) -> Self {
        let bytes = image.bytes();
        let (sb, geo) = open(&bytes);
        let csum = GroupCsum::new(&sb);
        Self { image, bytes, sb, geo, csum }
    }

    fn block(&self, nr: u64) -> &[u8] {
        block(&self.bytes, &self.geo, nr)
    }

    fn desc_bytes(&self, group: u32) -> &[u8] {
        let (nr, at) = self.geo.desc_slot(group);
        &self.block(self.geo.desc_block(&self.sb, nr))[at..at + self.geo.desc_size]
    }

    fn desc(&self, group: u32) -> GroupDesc {
        GroupDesc::decode(self.desc_bytes(group)).unwrap()
    }

    fn inode_bytes(&self, ino: u32) -> &[u8] {
        let (group, index) = self.geo.inode_group(ino).unwrap();
        let (nr, at) = self.geo.inode_slot(index);
        let table = self.desc(group).bg_inode_table + u64::from(nr);
        &self.block(table)[at..at + self.geo.inode_size]
    }

    fn inode(&self, ino: u32) -> Inode {
        Inode::decode(self.inode_bytes(ino)).unwrap()
    }

    fn seed(&self, ino: u32) -> u32 {
        checksum::inode_seed(self.sb.csum_seed(), ino, self.inode(ino).i_generation)
    }

    /// Physical block of a file's logical block, through either mapping, every node checked.
    fn map(&self, ino: u32, logical: u32) -> Option<u64> {
        let inode = self.inode(ino);
        if !inode.has_flag(flags::EXTENTS) {
            let path = blockmap::BlockPath::new(logical, self.geo.block_size).unwrap();
            let mut slots = path.slots().iter();
            let mut at = blockmap::pointer(&inode.i_block, *slots.next().unwrap()).unwrap();
            for slot in slots {
                assert!(at != 0);
                at = blockmap::pointer(self.block(at.into()), *slot).unwrap();
            }
            return (at != 0).then_some(at.into());
        }
        let mut limits = NodeLimits::root(&self.geo);
        let mut raw = &inode.i_block[..];
        loop {
            let node = Node::parse(raw, &limits).unwrap();
            let i = node.search(logical)?;
            if node.depth() == 0 {
                return node.extent(i).unwrap().map(logical);
            }
            limits = limits.child(&node, i);
            raw = self.block(node.index(i).unwrap().leaf);
            if self.geo.metadata_csum {
                extent::verify_block_checksum(raw, self.seed(ino)).unwrap();
                let mut again = raw.to_vec();
                extent::set_block_checksum(&mut again, self.seed(ino));
                assert_eq!(again, raw);
            }
        }
    }
}

#[test]
fn every_structure_of_every_kind() {
    for (name, size_mib, args) in KINDS {
        let Some(image) = mke2fs(*size_mib, args, None) else {
            skip("every_structure_of_every_kind", &format!("mke2fs cannot make {name}"));
            continue;
        };
        let fs = Fs::new(image);
        superblocks_and_backups(name, &fs);
        descriptors_and_bitmaps(name, &fs);
        inodes_and_directories(name, &fs);
        journals_orphan_files_and_mmp(name, &fs);
    }
}

fn superblocks_and_backups(name: &str, fs: &Fs) {
    fs.sb.verify_checksum(&fs.bytes[1024..2048]).unwrap();
    fs.sb.check_features().unwrap();
    let mut again = fs.bytes[1024..2048].to_vec();
    fs.sb.encode_into(&mut again).unwrap();
    assert!(again == fs.bytes[1024..2048], "{name}");
    let dumpe2fs = fs.image.debugfs("stats");
    for group in 1..fs.geo.group_count {
        let at = usize::try_from(fs.geo.group_first_block(group)).unwrap() * fs.geo.block_size;
        let copy = Superblock::decode(&fs.bytes[at..]).ok();
        let copy = copy.filter(|sb| u32::from(sb.s_block_group_nr) == group);
        assert_eq!(copy.is_some(), fs.sb.group_has_super(group), "{name} group {group}");
        if let Some(sb) = copy {
            sb.verify_checksum(&fs.bytes[at..at + 1024]).unwrap();
        }
    }
    let inodes = format!("Inode count:              {}\n", fs.sb.s_inodes_count);
    assert!(dumpe2fs.contains(&inodes), "{name}: {dumpe2fs}");
}

fn descriptors_and_bitmaps(name: &str, fs: &Fs) {
    let (mut free, mut free_inodes) = (0, 0);
    for g in 0..fs.geo.group_count {
        let raw = fs.desc_bytes(g);
        let mut desc = fs.desc(g);
        desc.verify_checksum(raw, g, &fs.csum).unwrap();
        desc.validate(g, &fs.geo).unwrap();
        let mut again = raw.to_vec();
        desc.encode_into(&mut again, g, &fs.csum);
        assert_eq!(again, raw, "{name} group {g}");
        free += u64::from(desc.bg_free_blocks_count);
        free_inodes += desc.bg_free_inodes_count;
        let blocks = fs.geo.group_blocks(g);
        let mut made = vec![0; fs.geo.block_size];
        group::init_block_bitmap(&mut made, &fs.sb, &fs.geo, g, &desc);
        if desc.has_flag(BLOCK_UNINIT) {
            let zeros = bitmap::count_zero(&made, 0, blocks);
            assert_eq!(zeros, desc.bg_free_blocks_count, "{name} group {g}");
        } else {
            let map = fs.block(desc.bg_block_bitmap);
            desc.verify_block_bitmap(g, map, &fs.geo, &fs.csum).unwrap();
            let zeros = bitmap::count_zero(map, 0, blocks);
            assert_eq!(zeros, desc.bg_free_blocks_count, "{name} group {g}");
            let tail = (blocks, fs.geo.blocks_per_group);
            assert_eq!(bitmap::find_zero(map, tail.0, tail.1), None);
            let stored = desc.bg_block_bitmap_csum;
            if fs.geo.metadata_csum {
                desc.set_block_bitmap_csum(map, &fs.geo, &fs.csum);
                assert_eq!(desc.bg_block_bitmap_csum, stored);
                let mut bad = map.to_vec();
                bad[0] ^= 1;
                desc.verify_block_bitmap(g, &bad, &fs.geo, &fs.csum).unwrap_err();
            }
        }
        if !desc.has_flag(INODE_UNINIT) {
            let map = fs.block(desc.bg_inode_bitmap);
            desc.verify_inode_bitmap(g, map, &fs.geo, &fs.csum).unwrap();
            let zeros = bitmap::count_zero(map, 0, fs.geo.inodes_per_group);
            assert_eq!(zeros, desc.bg_free_inodes_count, "{name} group {g}");
            if fs.geo.metadata_csum {
                let stored = desc.bg_inode_bitmap_csum;
                desc.set_inode_bitmap_csum(map, &fs.geo, &fs.csum);
                assert_eq!(desc.bg_inode_bitmap_csum, stored);
            }
        }
    }
    assert_eq!(free, fs.sb.s_free_blocks_count, "{name}");
    assert_eq!(free_inodes, fs.sb.s_free_inodes_count, "{name}");
}

fn inodes_and_directories(name: &str, fs: &Fs) {
    let first_ino = fs.sb.first_ino();
    for ino in 1..=first_ino + 2 {
        let (raw, inode) = (fs.inode_bytes(ino), fs.inode(ino));
        let seed = fs.geo.metadata_csum.then(|| fs.seed(ino));
        if inode.i_mode != 0 || ino <= first_ino {
            if let Some(seed) = seed {
                inode.verify_checksum(raw, seed).unwrap();
            }
            let mut again = raw.to_vec();
            inode.encode_into(&mut again, seed).unwrap();
            assert_eq!(again, raw, "{name} inode {ino}");
        }
    }
    let format = dir::DirFormat::new(&fs.sb);
    let mut names = Vec::new();
    for ino in [2, first_ino] {
        let inode = fs.inode(ino);
        assert!(inode.is_dir(), "{name}");
        assert_eq!(inode.sectors(fs.geo.block_size) * 512 % fs.geo.block_size as u64, 0);
        for logical in 0..(inode.i_size >> fs.geo.block_bits) as u32 {
            let raw = fs.block(fs.map(ino, logical).unwrap());
            dir::verify_checksum(raw, &format, fs.seed(ino)).unwrap();
            let mut again = raw.to_vec();
            dir::set_checksum(&mut again, &format, fs.seed(ino));
            assert_eq!(again, raw, "{name}");
            for entry in dir::Entries::new(raw, &format) {
                let entry = entry.unwrap();
                if entry.inode != 0 {
                    names.push(String::from_utf8(entry.name.to_vec()).unwrap());
                }
            }
        }
    }
    assert_eq!(names, [".", "..", "lost+found", ".", ".."], "{name}");
}

fn journals_orphan_files_and_mmp(name: &str, fs: &Fs) {
    if fs.sb.has_journal() {
        let ino = fs.sb.s_journal_inum;
        let raw = &fs.block(fs.map(ino, 0).unwrap())[..1024];
        let jsb = JournalSuperblock::decode(raw).unwrap();
        jsb.verify_checksum(raw).unwrap();
        let file_blocks = fs.inode(ino).i_size >> fs.geo.block_bits;
        jsb.validate(fs.geo.block_size, file_blocks).unwrap();
        let mut again = raw.to_vec();
        jsb.encode_into(&mut again).unwrap();
        assert_eq!(again, raw, "{name}");
        let last = fs.map(ino, jsb.s_maxlen - 1);
        assert!(last.is_some_and(|nr| fs.geo.is_valid_range(nr, 1)), "{name}");
    }
    if fs.sb.s_orphan_file_inum != 0 {
        let ino = fs.sb.s_orphan_file_inum;
        for logical in 0..(fs.inode(ino).i_size >> fs.geo.block_bits) as u32 {
            let nr = fs.map(ino, logical).unwrap();
            orphan_file::verify(fs.block(nr), nr, Some(fs.seed(ino))).unwrap();
            let mut again = fs.block(nr).to_vec();
            orphan_file::set_checksum(&mut again, nr, fs.seed(ino));
            assert_eq!(again, fs.block(nr), "{name}");
            assert_eq!(orphan_file::orphans(&again).count(), 0);
        }
    }
    if fs.sb.s_mmp_block != 0 {
        let raw = fs.block(fs.sb.s_mmp_block);
        let seed = fs.geo.metadata_csum.then(|| fs.sb.csum_seed());
        let found = mmp::Mmp::decode(raw, seed).unwrap();
        let mut again = raw.to_vec();
        found.encode_into(&mut again, seed).unwrap();
        assert_eq!(again, raw, "{name}");
    }
}

/// A directory with an index, a fragmented file with extent blocks, and xattrs, all made by
/// e2fsprogs.
#[test]
fn populated_image() {
    let tree = common::temp_dir();
    let many = tree.path().join("many");
    std::fs::create_dir(&many).unwrap();
    for i in 0..3000 {
        let name = format!("a-file-with-\u{e4}-rather-l\u{f6}ng-name-{i:05}");
        std::fs::write(many.join(name), b"").unwrap();
    }
    std::fs::write(tree.path().join("sparse"), b"x").unwrap();
    let sparse = std::fs::File::options().write(true).open(tree.path().join("sparse")).unwrap();
    for i in 0..600u64 {
        std::os::unix::fs::FileExt::write_at(&sparse, b"data", i * 8192).unwrap();
    }
    drop(sparse);
    std::os::unix::fs::symlink("short target", tree.path().join("link")).unwrap();
    for (block_size, unsigned) in [("1024", false), ("4096", true)] {
        let args = ["-t", "ext4", "-b", block_size];
        let Some(image) = mke2fs(32, &args, Some(tree.path())) else {
            return skip("populated_image", "mke2fs -d is not available");
        };
        if unsigned {
            image.debugfs_write("set_super_value flags 2");
        }
        // e2fsck -D makes the index: mke2fs does not.
        let e2fsck = common::program("e2fsck").unwrap();
        let status = std::process::Command::new(e2fsck)
            .args(["-fyD"])
            .arg(image.path())
            .output()
            .unwrap()
            .status;
        assert!(status.code().is_some_and(|code| code < 2));
        for i in 0..3 {
            image.debugfs_write(&format!("ea_set sparse user.key{i} value-{i}"));
        }
        image.debugfs_write(&format!("ea_set sparse user.large {}", "v".repeat(300)));
        image.debugfs_write(&format!("ea_set sparse user.second {}", "w".repeat(200)));
        let fs = Fs::new(image);
        check_populated(&fs);
        rewrite_and_fsck(&fs);
    }
}

fn lookup(fs: &Fs, ino: u32, name: &str) -> u32 {
    let format = dir::DirFormat::new(&fs.sb);
    let blocks = (fs.inode(ino).i_size >> fs.geo.block_bits) as u32;
    (0..blocks)
        .find_map(|logical| {
            let raw = fs.block(fs.map(ino, logical).unwrap());
            dir::find(raw, &format, name.as_bytes()).unwrap().map(|e| e.inode)
        })
        .unwrap_or_else(|| panic!("no {name}"))
}

fn check_populated(fs: &Fs) {
    check_index(fs, lookup(fs, 2, "many"));
    let link = fs.inode(lookup(fs, 2, "link"));
    assert_eq!(link.fast_symlink_target(fs.geo.block_size, false), Some(&b"short target"[..]));

    let sparse = lookup(fs, 2, "sparse");
    let data = fs.block(fs.map(sparse, (599 * 8192 / fs.geo.block_size) as u32).unwrap());
    assert_eq!(&data[..4], b"data");
    assert!(Node::parse_header(&fs.inode(sparse).i_block).unwrap().depth() > 0);

    let (inode, raw) = (fs.inode(sparse), fs.inode_bytes(sparse));
    inode.verify_checksum(raw, fs.seed(sparse)).unwrap();
    let area = &raw[inode.xattr_range(raw.len()).unwrap()];
    let mut found = Vec::new();
    for x in xattr::Entries::new(area, xattr::Place::Inode).unwrap() {
        found.push(x.unwrap().full_name().unwrap());
    }
    assert!(inode.i_file_acl != 0, "the large values need a block");
    let block = fs.block(inode.i_file_acl);
    xattr::verify_block_checksum(block, inode.i_file_acl, fs.sb.csum_seed()).unwrap();
    let set = xattr::XattrSet::decode(block, xattr::Place::Block).unwrap();
    found.extend(set.iter().map(|x| x.full_name().unwrap()));
    found.sort();
    let want = ["user.key0", "user.key1", "user.key2", "user.large", "user.second"];
    assert_eq!(found, want.map(|n| n.as_bytes().to_vec()));
    let mut again = vec![0; block.len()];
    set.encode_block(&mut again, xattr::refcount(block)).unwrap();
    for x in xattr::Entries::new(&again, xattr::Place::Block).unwrap() {
        let x = x.unwrap();
        assert_eq!(set.get(x.index, x.name), Some(x));
    }
    assert_eq!(xattr::XattrSet::decode(&again, xattr::Place::Block).unwrap().len(), set.len());
}

/// Rebuilds both xattr areas, a linear directory and an index block with our encoders, in the
/// image: e2fsck must find nothing.
fn rewrite_and_fsck(fs: &Fs) {
    use xattr::{Place, XattrSet};
    let mut bytes = fs.bytes.clone();
    let mut put = |at: u64, new: &[u8]| {
        let at = usize::try_from(at).unwrap();
        bytes[at..at + new.len()].copy_from_slice(new);
    };
    let ino = lookup(fs, 2, "sparse");
    let mut inode = fs.inode(ino);
    let mut set = XattrSet::decode(fs.block(inode.i_file_acl), Place::Block).unwrap();
    set.set(1, b"b", b"odd").unwrap();
    set.set(1, b"aaa", b"").unwrap();
    set.set(6, b"z", b"four").unwrap();
    set.remove(1, b"large");
    let mut raw = fs.block(inode.i_file_acl).to_vec();
    set.encode_block(&mut raw, 1).unwrap();
    assert!(xattr::block_hash(&raw) != 0);
    xattr::set_block_checksum(&mut raw, inode.i_file_acl, fs.sb.csum_seed());
    put(inode.i_file_acl * fs.geo.block_size as u64, &raw);

    let mut raw = fs.inode_bytes(ino).to_vec();
    let range = inode.xattr_range(raw.len()).unwrap();
    let mut set = XattrSet::decode(&raw[range.clone()], Place::Inode).unwrap();
    assert!(set.remove(1, b"key0"));
    set.set(1, b"key9", b"12345").unwrap();
    set.encode_inode(&mut raw[range]).unwrap();
    inode.i_mtime = Timestamp { seconds: -5, nanoseconds: 7 };
    inode.encode_into(&mut raw, Some(fs.seed(ino))).unwrap();
    let (group, index) = fs.geo.inode_group(ino).unwrap();
    let (nr, at) = fs.geo.inode_slot(index);
    let table = fs.desc(group).bg_inode_table + u64::from(nr);
    put(table * fs.geo.block_size as u64 + at as u64, &raw);

    let format = dir::DirFormat::new(&fs.sb);
    let at = fs.map(2, 0).unwrap();
    let mut raw = fs.block(at).to_vec();
    let old = dir::find(&raw, &format, b"link").unwrap().unwrap();
    let (offset, target, kind) = (old.offset, old.inode, old.file_type);
    dir::remove(&mut raw, &format, offset).unwrap();
    dir::insert(&mut raw, &format, b"a new and longer name", target, kind).unwrap();
    dir::set_checksum(&mut raw, &format, fs.seed(2));
    put(at * fs.geo.block_size as u64, &raw);

    std::fs::write(fs.image.path(), &bytes).unwrap();
    let (code, output) = fs.image.e2fsck();
    assert_eq!(code, 0, "{output}");
    let listed = fs.image.debugfs("ea_list sparse");
    for want in ["user.aaa", "user.key9", "security.z"] {
        assert!(listed.contains(want), "{listed}");
    }
    assert!(fs.image.debugfs("ls -l").contains("a new and longer name"));
}

/// Every name of an indexed directory lies in the leaf that its hash asks for.
fn check_index(fs: &Fs, ino: u32) {
    let inode = fs.inode(ino);
    assert!(inode.has_flag(flags::INDEX));
    let dir_blocks = inode.i_size >> fs.geo.block_bits;
    let root = fs.block(fs.map(ino, 0).unwrap());
    let info = htree::root_info(root, false).unwrap();
    let kind = htree::HashKind {
        version: fs.sb.hash_version_of(info.hash_version).unwrap(),
        seed: fs.sb.s_hash_seed,
    };
    let format = dir::DirFormat::new(&fs.sb);
    let mut seen = 0;
    let mut stack = vec![(0u32, NodeKind::Root, info.indirect_levels, 0u32, u32::MAX)];
    while let Some((logical, node_kind, levels, low, high)) = stack.pop() {
        let raw = fs.block(fs.map(ino, logical).unwrap());
        htree::verify_checksum(raw, node_kind, fs.seed(ino)).unwrap();
        let mut again = raw.to_vec();
        htree::set_checksum(&mut again, node_kind, fs.seed(ino));
        assert_eq!(again, raw);
        let node = htree::Node::parse(raw, node_kind, true, dir_blocks).unwrap();
        for i in 0..node.len() {
            let entry = node.entry(i).unwrap();
            let from = if i == 0 { low } else { entry.hash };
            let to = node.entry(i + 1).map_or(high, |next| next.hash);
            if levels > 0 {
                stack.push((entry.block, NodeKind::Inner, levels - 1, from, to));
                continue;
            }
            let leaf = fs.block(fs.map(ino, entry.block).unwrap());
            dir::verify_checksum(leaf, &format, fs.seed(ino)).unwrap();
            for entry in dir::Entries::new(leaf, &format) {
                let entry = entry.unwrap();
                if entry.inode != 0 {
                    let hash = htree::hash(&kind, entry.name).major;
                    assert!(hash >= from & !1 && hash <= to, "{hash:#x} in {from:#x}..{to:#x}");
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 3000);
    assert!(le32(root, 0x18) == 0);
}

/// `debugfs -R dx_hash` on names of all lengths, with bytes above 127. debugfs knows the
/// signed hashes only; `populated_image` has an index made with unsigned chars.
#[test]
fn hashes_are_debugfs_hashes() {
    use syncline_ondisk::htree::{HashKind, HashVersion, hash};
    let Some(image) = mke2fs(16, &["-t", "ext4", "-b", "1024"], None) else {
        return skip("hashes_are_debugfs_hashes", "mke2fs is missing");
    };
    // The UUID 5a6d1f00-89ab-4cde-8123-456789abcdef as the superblock holds it.
    let seed = [0x001f_6d5a, 0xde4c_ab89, 0x6745_2381, 0xefcd_ab89];
    let versions = [
        ("legacy", HashVersion::Legacy),
        ("half_md4", HashVersion::HalfMd4),
        ("tea", HashVersion::Tea),
    ];
    let letters: String = ('a'..='z').cycle().take(255).collect();
    let mut names: Vec<String> = [1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 64, 200, 255]
        .into_iter()
        .map(|n| letters[..n].to_owned())
        .collect();
    names.push("\u{e9}t\u{e9}-\u{20ac}\u{ff}".to_owned());
    names.push("\u{65e5}\u{672c}".repeat(12));
    let mut script = String::new();
    for (name, _) in versions {
        for file in &names {
            for seed in ["", "-s 5a6d1f00-89ab-4cde-8123-456789abcdef "] {
                script += &format!("dx_hash -h {name} {seed}{file}\n");
            }
        }
    }
    let text = debugfs_says(&image.path(), &script);
    let mut lines = text.lines().filter(|line| line.starts_with("Hash of "));
    for (name, version) in versions {
        for file in &names {
            for seed in [[0; 4], seed] {
                let got = hash(&HashKind { version, seed }, file.as_bytes());
                let line = lines.next().unwrap_or_else(|| panic!("too few lines: {text}"));
                let want = format!(" is {:#x} (minor {:#x})", got.major, got.minor);
                assert!(line.ends_with(&want), "{name} {file}: {line}, not {want}");
            }
        }
    }
}

/// What debugfs prints for commands.
fn debugfs_says(image: &std::path::Path, script: &str) -> String {
    let path = image.with_file_name("script");
    std::fs::write(&path, script).unwrap();
    let out = std::process::Command::new(common::program("debugfs").unwrap())
        .arg("-f")
        .arg(&path)
        .arg(image)
        .output()
        .unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The hashes of folded names are those of `debugfs -R "dx_hash -c"`: every character that Unicode
/// 12.1 has beyond ASCII and outside of the large blocks, and marks in every order.
#[test]
fn folded_names_are_debugfs_names() {
    use syncline_ondisk::casefold::Casefold;
    use syncline_ondisk::htree::{HashKind, HashVersion, hash};
    let test = "folded_names_are_debugfs_names";
    let Some(image) = mke2fs(16, &["-t", "ext4", "-b", "1024"], None) else {
        return skip(test, "mke2fs is missing");
    };
    let fold = Casefold::utf8_12_1();
    let plain = |char: &char| !matches!(u32::from(*char), 0..=0xa0 | 0x3400..=0xabff);
    let all = ('\u{a1}'..='\u{2fa20}').filter(plain).step_by(1);
    let far = |char: &char| !matches!(u32::from(*char), 0x17000..=0x1b000 | 0x20000..=0x2f7ff);
    let mut names: Vec<String> = Vec::new();
    let (mut some, mut marks) = (String::from("X"), Vec::new());
    for char in all.filter(far) {
        if u32::from(char) > 0xac00 && u32::from(char) < 0xd7a4 && u32::from(char) % 97 != 0 {
            continue;
        }
        if fold.fold(char.to_string().as_bytes()).is_none() {
            continue;
        }
        some.push(char);
        if some.len() > 40 {
            names.push(std::mem::replace(&mut some, String::from("Q")));
        }
        if char.is_alphabetic() || matches!(u32::from(char), 0x300..=0x36f | 0x591..=0x5c7) {
            marks.push(char);
        }
    }
    for (nr, chars) in marks.chunks(3).enumerate() {
        let mark =
            |by: usize| char::from_u32(0x300 + ((nr * by) % 0x70) as u32).unwrap_or('\u{300}');
        let mixed = chars.iter().flat_map(|char| [*char, mark(1), mark(5), mark(11)]);
        names.push(mixed.collect());
    }
    let script: String =
        names.iter().map(|name| format!("dx_hash -h half_md4 -c -e utf8 {name}\n")).collect();
    let text = debugfs_says(&image.path(), &script);
    if !text.contains("Hash of ") {
        return skip(test, "debugfs does not fold names");
    }
    let kind = HashKind { version: HashVersion::HalfMd4, seed: [0; 4] };
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("Hash of ")).collect();
    assert_eq!(lines.len(), names.len());
    assert!(names.len() > 2000, "{}", names.len());
    for (name, line) in names.iter().zip(lines) {
        let got = hash(&kind, &fold.fold(name.as_bytes()).unwrap());
        let want = format!(" is {:#x} (minor {:#x})", got.major, got.minor);
        assert!(line.ends_with(&want), "{}: {line}, not {want}", name.escape_unicode());
    }
}
