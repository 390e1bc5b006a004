/* Also compiled as C++17: what a program sees that has the header and the library alone. */
#include <strata.h>

#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                     \
  do {                                                                                                  \
    const strata_status status = (call);                                                                \
    if (status != STRATA_OK) {                                                                          \
      fprintf(stderr, "%s: %s: %s\n", #call, strata_status_name(status), strata_last_error());          \
      return 1;                                                                                         \
    }                                                                                                   \
  } while (0)

enum { kElems = 1000 };

int main(void) {
  static float weight[kElems], gradient[kElems];
  const int64_t dims[1] = {kElems};
  void* params[1];
  strata_session session;
  strata_session_options options = {0};
  strata_param param = {0};
  strata_settings settings = {0};
  strata_update update = {0};
  int i;

  for (i = 0; i < kElems; ++i) gradient[i] = 1;
  options.struct_size = sizeof options;
  CHECK(strata_session_create(&options, &session));
  param.struct_size = sizeof param;
  param.name = "weight";
  param.n_dims = 1;
  param.dims = dims;
  CHECK(strata_session_add(session, &param));
  params[0] = weight;
  CHECK(strata_session_seal(session, params, 1));

  settings.struct_size = sizeof settings;
  settings.lr = 0.125;
  settings.beta1 = 0.9;
  settings.beta2 = 0.999;
  settings.eps = 1e-8;
  settings.grad_factor = 1;
  update.struct_size = sizeof update;
  update.values = weight;
  update.gradient = gradient;
  update.settings = &settings;
  CHECK(strata_session_step(session, &update, 1));
  CHECK(strata_session_close(session));
  /* The first step of Adam is the learning rate. */
  printf("strata %s, version %u of the interface: a step took a weight from 0 to %g\n", strata_version(),
         (unsigned)strata_abi_version(), weight[kElems - 1]);
  return weight[0] == -0.125f && weight[kElems - 1] == -0.125f ? 0 : 1;
}
