//! Where the values of a key become one. That they become the same is the store's suite.

use kvstore_core::{
    Backends, CpuBackend, DType, Device, DeviceReducer, HostReducer, Reducer, Tensor, TensorSpec,
};

#[test]
fn the_home_is_the_host_or_the_device_of_the_first_value() {
    let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
    let spec = TensorSpec::new([2], DType::F32);
    let value = Tensor::allocate(&backends, Device::cpu(3), spec).unwrap();
    assert_eq!(HostReducer.home(&value), Device::cpu(0));
    assert_eq!(DeviceReducer.home(&value), Device::cpu(3));
}
