//! nginx as a plain HTTP/1.1 proxy that passes each byte on as it comes, with its connections kept: what the daemon
//! is measured beside.

use std::process::Command;
use std::time::Duration;

use super::process::Process;
use super::{free_port, tool, wait_for};

pub(crate) struct Nginx {
    process: Process,
    pub(crate) port: u16,
    _dir: tempfile::TempDir,
}

impl Nginx {
    pub(crate) fn start(upstream: u16) -> Self {
        let dir = tempfile::TempDir::new().expect("a temporary folder");
        let port = free_port();
        let place = dir.path().display();
        let config = format!(
            "daemon off; master_process off; worker_processes 1; pid {place}/pid; error_log {place}/error crit;
            events {{ worker_connections 512; }}
            http {{
                access_log off; tcp_nodelay on; keepalive_requests 1000000;
                client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;
                fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;
                upstream model {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000; }}
                server {{
                    listen 127.0.0.1:{port};
                    location / {{
                        proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection \"\";
                        proxy_buffering off; client_max_body_size 32m;
                    }}
                }}
            }}"
        );
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, config).expect("a temporary folder is writable");
        let mut command = Command::new(tool("nginx"));
        command.arg("-c").arg(&file).arg("-p").arg(dir.path()).args(["-e", "stderr"]);
        let process = Process::spawn("nginx", &mut command);
        wait_for("nginx", Duration::from_secs(10), || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        Self { process, port, _dir: dir }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}
