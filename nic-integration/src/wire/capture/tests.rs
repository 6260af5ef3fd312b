use std::net::Ipv4Addr;

use crate::wire::SocketWire;

use super::*;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The checksum over a header and pseudo-header that hold their own checksum is 0: RFC 1071.
fn check_udp(packet: &[u8], ip_bytes: usize, address_bytes: usize) {
    let addresses = &packet[ip_bytes - 2 * address_bytes..ip_bytes];
    let udp = &packet[ip_bytes..];
    let [high, low] = (udp.len() as u16).to_be_bytes();
    assert_eq!(checksum([addresses, &[0, UDP, high, low], udp]), 0);
}

#[test]
fn checksums_are_those_of_rfc_1071() {
    // The example of RFC 1071, section 3: the sum is ddf2.
    assert_eq!(checksum([&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7][..]]), !0xddf2);
    assert_eq!(checksum([&[0xff; 4][..], &[0xff]]), !0xff00, "an odd byte is the upper one");
}

#[test]
fn a_record_of_ipv4_is_these_bytes() {
    let mut out = vec![];
    let when = Duration::new(0x0102_0304, 5_000_999);
    append_record(&mut out, when, addr("127.0.0.1:7700"), addr("192.0.2.10:513"), b"CG\x02");
    #[rustfmt::skip]
    let expected = [
        4, 3, 2, 1,  0x88, 0x13, 0, 0,  31, 0, 0, 0,  31, 0, 0, 0,
        // The header's sum: 4500 + 001f + 4000 + 4011 + 7f00 + 0001 + c000 + 020a = 2063b, so 063d.
        0x45, 0, 0, 31,  0, 0, 0x40, 0,  64, 17, 0xf9, 0xc2,  127, 0, 0, 1,  192, 0, 2, 10,
        // The datagram's: 7f00 + 0001 + c000 + 020a + 0011 + 000b + 1e14 + 0201 + 000b + 4347 + 0200
        // = 1a68e, so a68f.
        0x1e, 0x14, 2, 1,  0, 11, 0x59, 0x70,  b'C', b'G', 2,
    ];
    assert_eq!(out, expected);
    check_udp(&out[16..], 20, 4);
}

#[test]
fn a_packet_of_ipv6_is_these_bytes() {
    let packet = packet(addr("[::1]:7700"), addr("[2001:db8::2]:9"), &[1, 2, 3, 4]);
    assert_eq!(packet[..8], [0x60, 0, 0, 0, 0, 12, 17, 64]);
    assert_eq!(packet[8..24], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(packet[24..40], [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(packet[40..46], [0x1e, 0x14, 0, 9, 0, 12]);
    assert_eq!(packet[48..], [1, 2, 3, 4]);
    check_udp(&packet, 40, 16);
}

#[test]
fn a_sum_of_zero_is_said_as_ones() {
    let of = |payload: u16| {
        packet(addr("10.0.0.1:1"), addr("10.0.0.2:2"), &payload.to_be_bytes())[26..28].to_vec()
    };
    let zeros = (0..=u16::MAX).filter(|&payload| of(payload) == [0xff, 0xff]).count();
    assert_eq!(zeros, 1);
    assert!((0..=u16::MAX).all(|payload| of(payload) != [0, 0]));
}

#[test]
fn the_longest_datagrams_fit() {
    let packet = packet(addr("10.0.0.1:1"), addr("10.0.0.2:2"), &[0xff; 65_507]);
    assert_eq!((packet.len(), &packet[2..4]), (65_535, &[0xff, 0xff][..]));
    check_udp(&packet, 20, 4);
}

#[test]
fn what_passes_is_in_the_file_in_order() {
    let bind = || SocketWire::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let (mut near, mut far) = (Captured::new(bind()), bind());
    let (here, there) = (near.local_addr().unwrap(), far.local_addr().unwrap());
    // Before there is a file, nothing is written.
    assert!(near.send(there.into(), b"unseen", 6));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap");
    near.capture(PcapFile::new(File::create(&path).unwrap()).unwrap()).unwrap();
    assert!(near.send(there.into(), b"aaaabbbbcc", 4), "a burst of three");
    assert!(far.send(here.into(), b"answer", 6));
    let mut received = vec![];
    let mut iterate = |wait| {
        near.receive(wait, &mut |_, bytes| {
            received.extend_from_slice(bytes);
            bytes.fill(0);
        })
    };
    assert_eq!(iterate(Duration::from_secs(10)), Ok(1));
    // Nothing came, so all is in the file while the wire lives.
    assert_eq!(iterate(Duration::ZERO), Ok(0));
    let file = std::fs::read(&path).unwrap();
    assert_eq!(file[..24], FILE_HEADER);
    let mut rest = &file[24..];
    for (from, to, bytes) in [
        (here, there, &b"aaaa"[..]),
        (here, there, b"bbbb"),
        (here, there, b"cc"),
        (there, here, b"answer"),
    ] {
        let packet = packet(from, to, bytes);
        assert_eq!(rest[8..12], (packet.len() as u32).to_le_bytes());
        assert_eq!(rest[16..16 + packet.len()], packet);
        rest = &rest[16 + packet.len()..];
    }
    assert!(rest.is_empty());
    assert_eq!(received, b"answer");
}

#[test]
fn a_file_that_cannot_be_written_ends_the_capture_alone() {
    let mut wire = Captured::new(SocketWire::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
    let read_only = File::open("/dev/null").unwrap();
    let here = wire.local_addr().unwrap();
    let file = PcapFile(Arc::new(Mutex::new(BufWriter::new(read_only))));
    wire.capture = Some(Capture { file, locals: vec![here], record: vec![] });
    assert!(wire.send(here.into(), &[7; 3000], 1000), "one buffer is not full yet");
    assert!(wire.send(here.into(), &[7; 9000], 1000));
    assert!(wire.capture.is_none(), "no space for them");
    assert!(wire.send(here.into(), b"on", 2));
}
