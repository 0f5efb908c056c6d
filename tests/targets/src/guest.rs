//! A Linux machine in QEMU: Debian's kernel, a shell, and programs of this machine, all in an initramfs.
//!
//! The kernel is not installed: `cargo xtask setup` unpacks its package into a folder of the user's cache. The guest
//! runs a script; the files that the script leaves in `/out` are returned through a disk that contains one tar archive.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::run::{self, Background, Context, Error, Result};

/// Packages of the guest: a metapackage that depends on the kernel's, and a shell.
pub const PACKAGES: [&str; 2] = ["linux-image-cloud-amd64", "busybox-static"];

/// Modules for a disk, in load order. A kernel may have some of them built in.
const MODULES: [&str; 6] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
];

/// Size of the disk in bytes.
const DISK: u64 = 64 << 20;

/// Shell commands before the script, and after it.
const BEFORE: &str = "\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in MODULES; do
    test -f /modules/$module.ko && insmod /modules/$module.ko
done
cd /out
";
const AFTER: &str = "
tar -c -f /dev/vda -C /out .
sync
poweroff -f
";

/// Folder of the unpacked packages.
pub fn folder() -> Option<PathBuf> {
    Some(std::env::home_dir()?.join(".cache/kymo/linux-guest"))
}

/// Kernel and shell of a guest.
#[derive(Clone, Debug)]
pub struct Kernel {
    image: PathBuf,
    modules: Vec<PathBuf>,
    busybox: PathBuf,
}

impl Kernel {
    /// Finds the unpacked kernel, if there is one.
    pub fn find() -> Option<Self> {
        let folder = folder()?;
        let busybox = ["bin/busybox", "usr/bin/busybox"].map(|path| folder.join(path));
        let busybox = busybox.into_iter().find(|path| path.is_file())?;
        let is_kernel = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("vmlinuz-"))
        };
        let image = files(&folder.join("boot"))
            .into_iter()
            .find(|path| is_kernel(path))?;
        let drivers = ["lib", "usr/lib"].map(|lib| folder.join(lib).join("modules"));
        let all: Vec<PathBuf> = drivers.iter().flat_map(|path| files(path)).collect();
        let modules = MODULES.iter().filter_map(|module| {
            let name = format!("{module}.ko");
            all.iter().find(|path| path.ends_with(&name)).cloned()
        });
        Some(Self {
            image,
            modules: modules.collect(),
            busybox,
        })
    }

    /// Boots the kernel with additional command-line parameters, runs a script as root, and returns the folder with the
    /// script's files from `/out`. Programs are in `/bin`, with their libraries.
    ///
    /// # Errors
    /// When QEMU can't be run, or takes longer than `limit`; `console.log` in `folder` has the guest's output.
    pub fn run(
        &self,
        script: &str,
        programs: &[&Path],
        words: &str,
        (folder, limit): (&Path, Duration),
    ) -> Result<PathBuf> {
        let _ = fs::remove_dir_all(folder);
        let out = folder.join("out");
        fs::create_dir_all(&out).context(out.display())?;
        let initramfs = folder.join("initramfs");
        let archive = self.initramfs(script, programs, folder)?;
        fs::write(&initramfs, archive).context(initramfs.display())?;
        let disk = folder.join("disk");
        let file = File::create(&disk).context(disk.display())?;
        file.set_len(DISK).context(disk.display())?;
        let console = File::create(folder.join("console.log")).context(folder.display())?;
        let mut qemu = Command::new("qemu-system-x86_64");
        // One thread for all CPUs makes their operations sequential, whatever the load of this machine.
        qemu.args(["-accel", "tcg,thread=single", "-smp", "2", "-m", "512"])
            .args([
                "-nodefaults",
                "-no-reboot",
                "-display",
                "none",
                "-serial",
                "stdio",
            ])
            .arg("-kernel")
            .arg(&self.image)
            .arg("-initrd")
            .arg(&initramfs)
            .arg("-drive")
            .arg(format!("file={},format=raw,if=virtio", disk.display()))
            .arg("-append")
            .arg(format!(
                "console=ttyS0 quiet panic=-1 nowatchdog rcupdate.rcu_cpu_stall_suppress=1 {words}"
            ))
            .stdin(Stdio::null())
            .stdout(console);
        let status = Background::start(&mut qemu)?.wait(limit)?;
        if !status.success() {
            return Err(Error::new(format!("qemu-system-x86_64: {status}")));
        }
        run::quietly(
            Command::new("tar")
                .arg("-xf")
                .arg(&disk)
                .arg("-C")
                .arg(&out),
        )?;
        fs::remove_file(&disk).context(disk.display())?;
        fs::remove_file(&initramfs).context(initramfs.display())?;
        Ok(out)
    }

    fn initramfs(&self, script: &str, programs: &[&Path], folder: &Path) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        for name in ["bin", "dev", "modules", "out", "proc", "sys", "tmp"] {
            archive.folder(name);
        }
        archive.file("bin/busybox", &self.busybox)?;
        for module in &self.modules {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            archive.file(&format!("modules/{name}"), module)?;
        }
        for program in programs {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            let stripped = folder.join(&*name);
            run::quietly(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
            archive.file(&format!("bin/{name}"), &stripped)?;
            fs::remove_file(&stripped).context(stripped.display())?;
            let libraries = run::output(Command::new("ldd").arg(program))?;
            for library in libraries
                .split_whitespace()
                .filter(|word| word.starts_with('/'))
            {
                archive.file(library.trim_start_matches('/'), Path::new(library))?;
            }
        }
        let init = BEFORE.replace("MODULES", &MODULES.join(" ")) + script + AFTER;
        archive.add("init", 0o100_755, init.as_bytes());
        Ok(archive.finish())
    }
}

/// All files below a folder; none if it does not exist.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            _ => found.push(entry.path()),
        }
    }
    found
}

/// A cpio archive as the kernel unpacks it (`Documentation/driver-api/early-userspace/buffer-format.rst`).
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    names: Vec<String>,
}

impl Archive {
    /// Adds a folder and its parents.
    fn folder(&mut self, name: &str) {
        if let Some((above, _)) = name.rsplit_once('/') {
            self.folder(above);
        }
        self.add(name, 0o040_755, &[]);
    }

    fn file(&mut self, name: &str, path: &Path) -> Result<()> {
        let bytes = fs::read(path).context(path.display())?;
        let mode = fs::metadata(path)
            .context(path.display())?
            .permissions()
            .mode();
        if let Some((above, _)) = name.rsplit_once('/') {
            self.folder(above);
        }
        self.add(name, 0o100_000 | mode & 0o777, &bytes);
        Ok(())
    }

    fn add(&mut self, name: &str, mode: u32, data: &[u8]) {
        if self.names.iter().any(|other| other == name) {
            return;
        }
        self.names.push(name.to_owned());
        let (number, size, length) = (self.names.len(), data.len(), name.len() + 1);
        self.bytes.extend(b"070701");
        let links = 1;
        for field in [
            number,
            mode as usize,
            0,
            0,
            links,
            0,
            size,
            0,
            0,
            0,
            0,
            length,
            0,
        ] {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(data);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}
