//! Container images made by hand: files of layouts and of archives of `docker save`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::members::{End, archive, member};

pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

pub fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Output of a program that is given bytes.
pub fn piped(command: &str, bytes: &[u8]) -> Vec<u8> {
    let mut run = Command::new("sh");
    let run = run.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let (mut pipe, bytes) = (run.stdin.take().unwrap(), bytes.to_vec());
    // A program that refuses its input closes the pipe.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&bytes)));
    let output = run.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{command}");
    output.stdout
}

/// Compresses a layer: no suffix, `+gzip` or `+zstd`.
pub fn packed(layer: &[u8], suffix: &str) -> Vec<u8> {
    match suffix {
        "+gzip" => piped("gzip -nc", layer),
        "+zstd" => piped("zstd -qc", layer),
        _ => layer.to_vec(),
    }
}

/// A descriptor of a blob.
pub fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(bytes), "size": bytes.len() })
}

/// Files by name.
#[derive(Clone, Default)]
pub struct Files(pub BTreeMap<String, Vec<u8>>);

impl Files {
    pub fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
        let path = format!("blobs/{}", digest(bytes).replace(':', "/"));
        self.0.insert(path, bytes.to_vec());
        descriptor(media_type, bytes)
    }

    /// Adds configuration, layers and manifest; the descriptor of the manifest.
    pub fn image(&mut self, layers: &[Vec<u8>], suffix: &str, platform: &str) -> Value {
        let diff_ids: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
        let layers: Vec<Value> = layers
            .iter()
            .map(|layer| self.blob(&format!("{LAYER}{suffix}"), &packed(layer, suffix)))
            .collect();
        self.manifest(&diff_ids, &layers, platform)
    }

    pub fn manifest(&mut self, diff_ids: &[String], layers: &[Value], platform: &str) -> Value {
        let rootfs = json!({ "type": "layers", "diff_ids": diff_ids });
        let mut config = platform_of(platform);
        config["rootfs"] = rootfs;
        let media_type = "application/vnd.oci.image.config.v1+json";
        let config = self.blob(media_type, config.to_string().as_bytes());
        let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config,
            "layers": layers });
        self.blob(MANIFEST, manifest.to_string().as_bytes())
    }

    /// Adds what makes it a layout.
    pub fn index(&mut self, manifests: &[Value]) {
        let index = json!({ "schemaVersion": 2, "manifests": manifests });
        self.0.insert("index.json".to_owned(), index.to_string().into_bytes());
        let version = b"{\"imageLayoutVersion\": \"1.0.0\"}".to_vec();
        self.0.insert("oci-layout".to_owned(), version);
    }

    /// A layout with one image.
    pub fn layout(layers: &[Vec<u8>], suffix: &str) -> Files {
        let mut files = Files::default();
        let mut manifest = files.image(layers, suffix, "linux/amd64");
        manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": "latest" });
        files.index(&[manifest]);
        files
    }

    /// An archive of `docker save`, of version 25 and later or of earlier ones.
    pub fn docker(layers: &[Vec<u8>], old: bool, tag: &str) -> Files {
        let mut files = if old { Files::default() } else { Files::layout(layers, "") };
        let mut paths = Vec::new();
        for layer in layers {
            let hex = digest(layer)[7..].to_owned();
            let path = if old { format!("{hex}/layer.tar") } else { format!("blobs/sha256/{hex}") };
            files.0.insert(path.clone(), layer.clone());
            paths.push(path);
        }
        let diff_ids: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
        let mut config = platform_of("linux/amd64");
        config["rootfs"] = json!({ "type": "layers", "diff_ids": diff_ids });
        let config = config.to_string().into_bytes();
        let hex = digest(&config)[7..].to_owned();
        let path = if old { format!("{hex}.json") } else { format!("blobs/sha256/{hex}") };
        files.0.insert(path.clone(), config);
        let image = json!([{ "Config": path, "RepoTags": [tag], "Layers": paths }]);
        files.0.insert("manifest.json".to_owned(), image.to_string().into_bytes());
        files
    }

    pub fn write(&self, dir: &Path) {
        for (name, bytes) in &self.0 {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }

    pub fn archive(&self) -> Vec<u8> {
        let members: Vec<Vec<u8>> =
            self.0.iter().map(|(name, data)| member(b'0', name.as_bytes(), b"", data)).collect();
        archive(&members, End::Record)
    }
}

/// `linux/arm/v7` as a document.
pub fn platform_of(text: &str) -> Value {
    let parts: Vec<&str> = text.split('/').collect();
    let mut platform = json!({ "os": parts[0], "architecture": parts[1] });
    if let Some(variant) = parts.get(2) {
        platform["variant"] = json!(variant);
    }
    platform
}
