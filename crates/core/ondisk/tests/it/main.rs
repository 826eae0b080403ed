//! Structures as bytes: images of stock tools, hand-made bytes, rejections, random edits.

mod common;
mod fast_commit;
mod images;
mod packed;
mod properties;
mod rejections;
