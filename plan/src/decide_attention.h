#pragma once

#include <strata/offload/machine_profile.h>

namespace strata {

struct LoadedConfig;

/// Decides train.attention_backend if it is `auto`, once memory.backend is known: the backends that the
/// machine has, ordered by their measured rates. `profile` may be null; with `other_machine` it tells which
/// there are. An order that is given loses the backends that this machine lacks.
void decide_attention(LoadedConfig& loaded, const MachineProfile* profile, bool other_machine);

}  // namespace strata
