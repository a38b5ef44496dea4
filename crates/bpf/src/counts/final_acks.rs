//! The connections that the kernel drops at their final ACK.
//!
//! Owns `programs/final_ack.c` and its link to the kernel's trace point. Counts on the whole machine. Needs the kernel's own
//! type information (CONFIG_DEBUG_INFO_BTF) and CAP_PERFMON, which root has.

use std::sync::atomic::{AtomicU64, Ordering};

use aya::Btf;
use aya::programs::RawTracePoint;
use sys::shared::SharedArray;

use crate::error::BpfError;
use crate::object::{Loaded, Object, object};

const FINAL_ACK: Object = object!("final_ack", "counting drops at the final ACK");

/// The program. It counts until it is dropped.
pub struct FinalAcks {
    dropped: SharedArray<AtomicU64>,
    _loaded: Loaded,
}

impl FinalAcks {
    /// Loads the program and begins to count.
    ///
    /// # Errors
    /// [`BpfError::Capability`], [`BpfError::Refused`], [`BpfError::System`].
    pub fn watch() -> Result<FinalAcks, BpfError> {
        let types = Btf::from_sys_fs().ok();
        let mut loaded = FINAL_ACK.load(|loader| {
            loader.btf(types.as_ref());
        })?;
        <&mut RawTracePoint>::try_from(loaded.program())
            .and_then(|program| {
                program.load()?;
                program.attach("kfree_skb").map(drop)
            })
            .map_err(|error| loaded.error("watch the packets that the kernel drops", &error))?;
        let dropped = loaded.share("state")?;
        Ok(FinalAcks { dropped, _loaded: loaded })
    }

    /// Connections dropped since the beginning.
    pub fn dropped(&self) -> u64 {
        self.dropped[0].load(Ordering::Relaxed)
    }
}
