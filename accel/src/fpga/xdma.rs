//! A card behind Xilinx's driver of the DMA core: registers and memory are files.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::FileExt,
    thread,
    time::Duration,
};

use super::{
    link::{Link, LinkError, transfers, wait_for},
    registers,
};

/// The most bytes of a transfer: drivers have a limit, and memory for its pages.
const MOST: usize = 4 << 20;
/// The time between two looks at the head, after some in a row.
const PAUSE: Duration = Duration::from_micros(50);

/// A card behind `/dev/xdma0` or another of that driver.
pub(super) struct Xdma {
    path: String,
    registers: File,
    up: File,
    down: File,
}

impl Xdma {
    /// Opens the files `_user`, `_h2c_0` and `_c2h_0` of a card, such as `/dev/xdma0`.
    pub(super) fn open(path: &str) -> Result<Self, LinkError> {
        let open = |end: &str, read: bool, write: bool| {
            let name = format!("{path}_{end}");
            let file = OpenOptions::new().read(read).write(write).open(&name);
            file.map_err(|why| LinkError::lost(format!("{name}: {why}")))
        };
        let registers = open("user", true, true)?;
        // Two programs would write to one ring and one memory.
        registers.try_lock().map_err(|why| match why {
            TryLockError::WouldBlock => LinkError::lost(format!("{path}_user: another has it")),
            TryLockError::Error(why) => LinkError::lost(format!("{path}_user: {why}")),
        })?;
        Ok(Self {
            path: path.into(),
            registers,
            up: open("h2c_0", false, true)?,
            down: open("c2h_0", true, false)?,
        })
    }

    /// Makes the error of a transfer.
    fn failed(&self, why: &io::Error) -> LinkError {
        LinkError::lost(format!("{}: {why}", self.path))
    }
}

impl Link for Xdma {
    fn describe(&self) -> String {
        self.path.clone()
    }

    fn is_emulated(&self) -> bool {
        false
    }

    fn read(&mut self, register: u32) -> Result<u32, LinkError> {
        let mut bytes = [0; 4];
        let read = self.registers.read_exact_at(&mut bytes, register.into());
        read.map_err(|why| self.failed(&why))?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn write(&mut self, register: u32, value: u32) -> Result<(), LinkError> {
        let written = self.registers.write_all_at(&value.to_le_bytes(), register.into());
        written.map_err(|why| self.failed(&why))
    }

    fn upload(&mut self, beat: u64, bytes: &[u8]) -> Result<(), LinkError> {
        for (part, at) in transfers(beat, bytes.len(), MOST) {
            self.up.write_all_at(&bytes[part], at).map_err(|why| self.failed(&why))?;
        }
        Ok(())
    }

    fn download(&mut self, beat: u64, bytes: &mut [u8]) -> Result<(), LinkError> {
        for (part, at) in transfers(beat, bytes.len(), MOST) {
            self.down.read_exact_at(&mut bytes[part], at).map_err(|why| self.failed(&why))?;
        }
        Ok(())
    }

    fn wait(&mut self, head: u32, patience: Duration) -> Result<(), LinkError> {
        let mut looks = 0;
        wait_for(head, patience, || {
            looks += 1;
            if looks > 20 {
                thread::sleep(PAUSE);
            }
            let now = self.read(registers::REGISTER_HEAD)?;
            // A card that fell off the bus reads as all ones.
            if now == u32::MAX && self.read(registers::REGISTER_ID)? != registers::ID {
                return Err(LinkError::lost(format!("{}: it left the bus", self.path)));
            }
            Ok(now)
        })
    }

    fn reset(&mut self) -> Result<(), LinkError> {
        self.write(registers::REGISTER_CONTROL, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a disk stand in for those of the driver.
    #[test]
    fn registers_and_memory_are_files() {
        let folder = std::env::temp_dir().join(format!("xdma-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("xdma0").to_str().unwrap().to_string();
        let lost = Xdma::open(&path).err();
        assert!(matches!(lost, Some(LinkError::Lost { why }) if why.contains("xdma0_user")));
        for end in ["user", "h2c_0", "c2h_0"] {
            std::fs::write(format!("{path}_{end}"), [7u8; 256]).unwrap();
        }
        let mut link = Xdma::open(&path).unwrap();
        let second = Xdma::open(&path).err();
        assert!(matches!(second, Some(LinkError::Lost { why }) if why.contains("another has it")));
        link.write(registers::REGISTER_HEAD, 5).unwrap();
        assert_eq!((link.read(registers::REGISTER_HEAD), link.read(0)), (Ok(5), Ok(0x0707_0707)));
        assert_eq!(link.wait(5, Duration::ZERO), Ok(()));
        assert_eq!(link.wait(6, Duration::from_millis(1)), Err(LinkError::Timeout));
        link.write(registers::REGISTER_HEAD, u32::MAX).unwrap();
        assert!(matches!(link.wait(5, Duration::ZERO), Err(LinkError::Lost { .. })));
        link.upload(2, &[1; 64]).unwrap();
        assert_eq!(std::fs::read(format!("{path}_h2c_0")).unwrap()[127..][..66], {
            let mut bytes = [1; 66];
            (bytes[0], bytes[65]) = (7, 7);
            bytes
        });
        let mut bytes = [0; 64];
        link.download(3, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 64]);
        assert!(matches!(link.download(4, &mut bytes), Err(LinkError::Lost { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
