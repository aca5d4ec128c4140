use std::io::Write as _;

use base64::Engine as _;
use proptest::prelude::*;

use super::*;

/// Decodes pieces; what each brought, and the encoding at the end.
fn decode(header: &str, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Encoding) {
    let mut encoding = Encoding::declared(header);
    let brought = pieces.iter().map(|piece| {
        let mut out = Vec::new();
        encoding.push(piece, &mut |plain| {
            out.extend_from_slice(plain);
            true
        });
        out
    });
    (brought.collect(), encoding)
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(plain).expect("written");
    encoder.finish().expect("bytes")
}

fn zlib(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(plain).expect("written");
    encoder.finish().expect("bytes")
}

pub(in crate::judge) fn zstd(plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0; zstd_safe::compress_bound(plain.len())];
    let length = zstd_safe::compress(&mut out[..], plain, 3).expect("room");
    out.truncate(length);
    out
}

/// Brotli without compression (RFC 7932 § 9.2): meta-blocks of at most 64 KiB, as they are.
pub(in crate::judge) fn brotli(plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut bits, mut filled) = (0_u32, 0);
    let mut put = |out: &mut Vec<u8>, value: u32, n: u32| {
        bits |= value << filled;
        filled += n;
        while filled >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            filled -= 8;
        }
        filled
    };
    put(&mut out, 0, 1); // a window of 64 KiB
    for block in plain.chunks(1 << 16) {
        put(&mut out, 0, 1); // not the last
        put(&mut out, 0, 2); // the length has four digits
        put(&mut out, block.len() as u32 - 1, 16);
        let rest = put(&mut out, 1, 1); // not compressed
        if rest > 0 {
            put(&mut out, 0, 8 - rest);
        }
        out.extend_from_slice(block);
    }
    let rest = put(&mut out, 3, 2); // the last, and empty
    if rest > 0 {
        put(&mut out, 0, 8 - rest);
    }
    out
}

const EVENTS: [&str; 4] = [
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo.\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
];

/// `EVENTS` by Python's brotli 1.2 (`Compressor(quality=9)`, `process` and `flush` an event, `finish`).
const BROTLI_EVENTS: [&str; 5] = [
    "CyUAAARKPa9Qc1wYP+kyGI47+xQccuAQWVt0zDIKNsbOlqCmJJElSrM80DYQ0CoqbmRCN+J2P/fiPsUX3ApmzkQY",
    "0AEAQBKpjC07AcaYTC7s2KWlGQ==",
    "0AEAQNKF7a06MCKAqxk=",
    "gAIAQKAm5y94HFBcWvPWIgoccm53O0iLKKAa674U0DdS8NYLwRH7YGaiK1cyAA==",
    "Aw==",
];

#[test]
fn what_a_server_flushes_comes_out_at_once() {
    let brotli: Vec<Vec<u8>> = BROTLI_EVENTS
        .iter()
        .map(|text| base64::engine::general_purpose::STANDARD.decode(text).expect("base64"))
        .collect();
    let mut zstd = zstd_safe::CCtx::create();
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for event in EVENTS {
        let mut out = vec![0; 4096];
        let mut output = OutBuffer::around(&mut out[..]);
        zstd.compress_stream(&mut output, &mut InBuffer::around(event.as_bytes())).expect("compressed");
        zstd.flush_stream(&mut output).expect("flushed");
        let length = output.pos();
        frames.push(out[..length].to_vec());
    }
    let mut out = [0; 64];
    let mut output = OutBuffer::around(&mut out[..]);
    zstd.end_stream(&mut output).expect("ended");
    let length = output.pos();
    frames.push(out[..length].to_vec());
    let mut deflate = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut gzip: Vec<Vec<u8>> = Vec::new();
    for event in EVENTS {
        deflate.write_all(event.as_bytes()).and_then(|()| deflate.flush()).expect("flushed");
        gzip.push(std::mem::take(deflate.get_mut()));
    }
    gzip.push(deflate.finish().expect("ended"));
    for (header, pieces) in [("br", &brotli), ("zstd", &frames), ("gzip", &gzip)] {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let (brought, encoding) = decode(header, &pieces);
        for (event, brought) in EVENTS.iter().zip(&brought) {
            assert_eq!(String::from_utf8_lossy(brought), *event, "{header}");
        }
        assert!(!encoding.is_cut() && !encoding.is_broken && !encoding.is_partial, "{header}");
        assert!(decode(header, &pieces[..3]).1.is_cut(), "{header}");
    }
}

#[test]
fn encodings_over_one_another_are_undone_from_the_last() {
    let plain = b"{\"a\":1}";
    for (header, body) in [
        ("gzip, br", brotli(&gzip(plain))),
        ("identity, zstd , gzip", gzip(&zstd(plain))),
        ("deflate,identity", zlib(plain)),
        ("X-GZIP", gzip(plain)),
    ] {
        let (brought, encoding) = decode(header, &[&body]);
        assert_eq!(brought.concat(), plain, "{header}");
        assert!(!encoding.is_broken && !encoding.is_cut(), "{header}");
    }
    for header in ["lz4", "gzip, compress", "gzip, gzip, gzip, gzip"] {
        assert!(decode(header, &[b"x"]).1.is_partial, "{header}");
    }
    assert!(Encoding::declared("").is_identity() && Encoding::declared(" identity ").is_identity());
}

#[test]
fn members_and_frames_follow_one_another_and_rubbish_behind_them_is_passed_over() {
    let two = [gzip(b"one "), gzip(b"two")].concat();
    assert_eq!(decode("gzip", &[&two]).0.concat(), b"one two");
    let frames = [zstd(b"one "), zstd(b"two")].concat();
    assert_eq!(decode("zstd", &[&frames]).0.concat(), b"one two");
    for (header, body) in
        [("gzip", gzip(b"one")), ("zstd", zstd(b"one")), ("br", brotli(b"one")), ("deflate", zlib(b"one"))]
    {
        let (brought, encoding) = decode(header, &[&body, b"\0\0rubbish"]);
        assert_eq!(brought.concat(), b"one", "{header}");
        assert!(!encoding.is_broken && !encoding.is_cut(), "{header}");
    }
}

#[test]
fn what_is_not_as_declared_is_broken() {
    for header in ["gzip", "zstd", "deflate", "br"] {
        assert!(decode(header, &[b"{\"choices\":[{\"message\":{}}]}"]).1.is_broken, "{header}");
    }
    // a window of 2^27 bytes, more than HTTP allows
    let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88, 0x01, 0x00, 0x00];
    assert!(decode("zstd", &[&wide]).1.is_broken);
}

#[test]
fn a_bomb_costs_its_limit_and_no_memory() {
    let zeros = vec![0; 1 << 20];
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let mut wide = zstd_safe::CCtx::create();
    let mut out = vec![0; 1 << 20];
    let mut output = OutBuffer::around(&mut out[..]);
    for _ in 0..80 {
        encoder.write_all(&zeros).expect("written");
        let mut input = InBuffer::around(&zeros);
        while input.pos() < zeros.len() {
            wide.compress_stream(&mut output, &mut input).expect("room");
        }
    }
    wide.end_stream(&mut output).expect("room");
    let length = output.pos();
    for (header, bomb) in [("gzip", encoder.finish().expect("bytes")), ("zstd", out[..length].to_vec())] {
        let (mut given, mut largest) = (0, 0);
        let mut encoding = Encoding::declared(header);
        encoding.push(&bomb, &mut |plain| {
            given += plain.len();
            largest = largest.max(plain.len());
            true
        });
        assert!(encoding.is_partial && !encoding.is_broken, "{header}");
        assert!(
            given <= MAX_DECODED && given > MAX_DECODED - 2 * PIECE && largest <= PIECE,
            "{header}: {given}"
        );
    }
}

proptest! {
    #[test]
    fn any_cut_of_any_bytes_decodes_alike_and_ends(
        plain in prop::collection::vec(any::<u8>(), 0..400),
        wild in prop::collection::vec(any::<u8>(), 0..60),
        header in prop::sample::select(vec!["gzip", "deflate", "br", "zstd", "br, gzip", "zstd, br", "x"]),
        spoiled: bool,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let body = match header {
            "gzip" => gzip(&plain),
            "deflate" => zlib(&plain),
            "br" => brotli(&plain),
            "zstd" => zstd(&plain),
            "br, gzip" => gzip(&brotli(&plain)),
            _ => brotli(&zstd(&plain)),
        };
        let body = if spoiled { [&body[..body.len() / 2], &wild].concat() } else { body };
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(body.len() + 1)).chain([0, body.len()]).collect();
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|w| &body[w[0]..w[1]]).collect();
        let (whole, one) = decode(header, &[&body]);
        let (parts, many) = decode(header, &pieces);
        prop_assert_eq!(whole.concat(), parts.concat());
        prop_assert_eq!((one.is_broken, one.is_partial, one.is_cut()), (many.is_broken, many.is_partial, many.is_cut()));
        if !spoiled && header != "x" {
            prop_assert_eq!(whole.concat(), plain);
            prop_assert!(!one.is_broken && !one.is_cut());
        }
    }
}
