//! `syncline top --web`, or `serve --web`, on a port of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};

pub struct Web {
    child: Child,
    pub address: SocketAddr,
}

impl Web {
    pub fn start(dir: &str) -> Web {
        Web::of(&["top", dir, "--web", "127.0.0.1:0", "--interval", "100"])
    }

    /// Of the program that says where it is in a line of its own.
    pub fn of(arguments: &[&str]) -> Web {
        let mut child = super::binary().args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines
            .filter_map(|line| line.strip_prefix("http://")?.split('/').next()?.parse().ok())
            .next();
        Web { child, address: address.unwrap_or_else(|| panic!("no address: {arguments:?}")) }
    }

    /// Status line, headers and body of an answer to a request with this host.
    pub fn ask(&self, path: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    /// A client that announces a body and sends none of it.
    pub fn announce(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: {}\r\n", self.address);
        write!(stream, "{head}Content-Length: 1000000\r\n\r\n").unwrap();
        stream
    }

    /// The body of an answer.
    pub fn get(&self, path: &str) -> String {
        let answer = self.ask(path, &self.address.to_string());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{head}");
        body.to_owned()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
