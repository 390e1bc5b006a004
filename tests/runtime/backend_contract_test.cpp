#include "runtime/backend_contract.h"

namespace strata {

INSTANTIATE_TEST_SUITE_P(Backends, BackendContractTest,
                         ::testing::Values(BackendKind::host_threads, BackendKind::host_latest_legal,
                                           BackendKind::null),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace strata
