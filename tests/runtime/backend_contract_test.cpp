#include "runtime/backend_contract.h"

namespace strata {

INSTANTIATE_TEST_SUITE_P(Backends, BackendContractTest,
                         ::testing::Values(Kind::host_threads, Kind::host_latest_legal, Kind::null),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace strata
