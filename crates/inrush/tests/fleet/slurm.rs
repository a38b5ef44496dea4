//! The example `deploy/fleet.slurm`, with programs in place of srun, NATS and our own.

use std::path::Path;

use assert_cmd::Command;

use crate::stand_ins::stand_ins;

#[test]
fn slurm_example_needs_no_port_of_nats() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/fleet.slurm");
    let folder = tempfile::tempdir().unwrap();
    let programs = [
        // Lives until the script ends it.
        ("nats-server", "exec sleep 60"),
        ("srun", "\"$@\""),
        ("inrush", "echo \"$NATS_URL\" \"$*\"; test \"$2\" = run || echo agent >> agents"),
        ("hostname", "echo n1"),
    ];
    let path = format!("{}:/usr/bin:/bin", stand_ins(folder.path(), &programs).display());
    let mut batch = Command::new("bash");
    batch.arg(script).args(["http://10.0.0.9/", "--rate", "400k"]).current_dir(folder.path());
    batch.env_remove("NATS_PORT").env("PATH", path).env("SLURM_NTASKS", "4").env("SLURM_PROCID", "0");
    batch.timeout(std::time::Duration::from_secs(30)).assert().success();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(
        read("fleet-0.json"),
        "nats://n1:4222 fleet run --agents 4 -- load http://10.0.0.9/ --rate 400k --output json\n"
    );
    assert_eq!(read("agents"), "agent\n");
}
