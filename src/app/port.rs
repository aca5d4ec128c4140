//! Who holds a port that is taken, as far as this machine tells.

use std::net::SocketAddr;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Program and process number that listen on the port, as `nginx (pid 42)`. Linux only; needs the right to look
/// into the process.
pub(super) fn holder(addr: SocketAddr) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .find_map(|table| inode(&table, addr.port()).map(str::to_owned))?;
    let wanted = format!("socket:[{inode}]");
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let Ok(files) = std::fs::read_dir(process.path().join("fd")) else { continue };
        let holds = files
            .flatten()
            .any(|f| std::fs::read_link(f.path()).is_ok_and(|to| to.to_string_lossy() == wanted));
        if holds {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("{} (pid {pid})", name.trim()));
        }
    }
    None
}

fn inode(table: &str, port: u16) -> Option<&str> {
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == LISTEN).then(|| fields.get(9).copied())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_sockets_is_read_by_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     0: 0100007F:1B9E 00000000:0000 01 0:0 00:0 0 0 0 111 1\n\
                     1: 0100007F:1B9E 00000000:0000 0A 0:0 00:0 0 0 0 222 1\n";
        assert_eq!(inode(table, 7070), Some("222"));
        assert_eq!(inode(table, 7071), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_port_of_our_own_is_found_under_our_own_process() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let said = holder(held.local_addr().expect("bound")).expect("found");
        assert!(said.contains(&format!("pid {}", std::process::id())), "{said}");
    }
}
