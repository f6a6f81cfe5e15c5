//! A price list on the loopback interface that answers what a test wants.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What is answered to every request from now on.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A status and a body.
    Whole(u16, String),
    /// Half of what was announced, then the end.
    Half(String),
    /// Nothing, as long as the client waits.
    Nothing,
}

/// A running price list.
pub struct List {
    address: SocketAddr,
    shared: Arc<Shared>,
}

type Answers = Box<dyn Fn(&str) -> Answer + Send>;

struct Shared {
    answers: Mutex<Answers>,
    requests: Mutex<Vec<String>>,
}

impl List {
    /// One that answers by the request's path.
    pub fn start(answers: impl Fn(&str) -> Answer + Send + 'static) -> List {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared { answers: Mutex::new(Box::new(answers)), requests: Mutex::default() });
        let list = List { address, shared: shared.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = shared.clone();
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        list
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers otherwise from now on.
    pub fn change(&self, answers: impl Fn(&str) -> Answer + Send + 'static) {
        *self.shared.answers.lock().expect("no panic") = Box::new(answers);
    }

    /// Heads of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().expect("no panic").clone()
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        self.requests.lock().expect("no panic").push(head);
        let answer = self.answers.lock().expect("no panic")(&path);
        let (status, body, length) = match &answer {
            Answer::Whole(status, body) => (*status, body.as_str(), body.len()),
            Answer::Half(body) => (200, &body[..body.len() / 2], body.len()),
            Answer::Nothing => {
                // Until the client gives up.
                let _ = reader.read_line(&mut String::new());
                return;
            }
        };
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        // A client that leaves early has its reasons.
        let _ = reader.get_mut().write_all(format!("{head}{body}").as_bytes());
    }
}
