#pragma once

#include <strata/offload/machine_profile.h>

namespace strata::test {

/// A machine on which nothing takes time but instructions whose flops are paced, and the network if it is
/// set.
inline MachineProfile flops_alone() {
  MachineProfile p;
  p.name = "flops";
  p.cores = 16;
  p.gemm_sizes = {1};
  p.flops_16bit = p.flops_f32 = {1e18};
  p.attention_flops_per_s = p.device_bytes_per_s = 1e18;
  p.h2d_bytes_per_s = p.d2h_bytes_per_s = p.link_bytes_per_s = 1e18;
  p.host_bytes_per_s = 1e18;
  p.update_s_per_param = {1e-15, 1e-15, 1e-15};
  return p;
}

}  // namespace strata::test
