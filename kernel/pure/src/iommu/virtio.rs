//! virtio-iommu: requests through a queue. Source: Virtual I/O Device (VIRTIO) 1.2, section 5.13.

/// A running virtio-iommu.
#[derive(Debug)]
pub struct VirtioIommu {}
