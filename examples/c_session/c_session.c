/* The whole life of a session in one file: a program in C trains a matrix towards given values, with the moments of
 * AdamW on NVMe, saves a checkpoint, and goes on from it when it is started again.
 *
 *   c_session STEPS [FOLDER] */
#include <strata.h>

#include <stdio.h>
#include <stdlib.h>

enum { kRows = 256, kColumns = 256, kElems = kRows * kColumns };

/* Every call returns a status; the text of the error names the object and the numbers. */
static void must(strata_status status) {
  if (status == STRATA_OK) return;
  fprintf(stderr, "%s: %s\n", strata_status_name(status), strata_last_error());
  exit(1);
}

/* A session for one parameter of 256 x 256 f32 values at `weight`, whose states are in `folder`. */
static strata_session open_session(float* weight, const char* folder) {
  const int64_t dims[2] = {kRows, kColumns};
  const strata_session_options options = {.struct_size = sizeof options, .optimizer = STRATA_ADAMW,
                                          .placement = STRATA_PLACE_NVME, .pinned_bytes = 64 << 20,
                                          .nvme_dirs = &folder, .n_nvme_dirs = 1};
  const strata_param param = {.struct_size = sizeof param, .name = "weight", .dtype = STRATA_F32, .n_dims = 2,
                              .dims = dims};
  strata_plan plan = {.struct_size = sizeof plan};
  strata_session session;
  must(strata_session_create(&options, &session));
  must(strata_session_add(session, &param));
  must(strata_session_plan(session, &plan)); /* allocates nothing: does it fit? */
  printf("%lld values need %llu bytes of RAM and %llu on NVMe\n", (long long)plan.n_params,
         (unsigned long long)plan.pinned_bytes, (unsigned long long)plan.nvme_bytes);
  must(strata_session_seal(session, (void*[]){weight}, 1)); /* allocates what was planned */
  return session;
}

/* Loads the checkpoint of an earlier start, if there is one; returns the steps that were done. */
static int64_t resume(strata_session session, const char* checkpoint) {
  int64_t steps = 0;
  const strata_status status = strata_session_load(session, checkpoint);
  if (status == STRATA_NOT_FOUND) return 0;
  must(status);
  must(strata_session_steps(session, &steps, NULL, 0));
  return steps;
}

int main(int argc, char** argv) {
  static float weight[kElems], gradient[kElems];
  const int64_t steps = argc > 1 ? atoll(argv[1]) : 100;
  const char* folder = argc > 2 ? argv[2] : "c_session.nvme";
  const strata_session session = open_session(weight, folder);
  const int64_t done = resume(session, "c_session.checkpoints/step-00000100");

  const strata_settings settings = {.struct_size = sizeof settings, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.999,
                                    .eps = 1e-8, .grad_factor = 1};
  const strata_update update = {.struct_size = sizeof update, .param = 0, .values = weight, .gradient = gradient,
                                .gradient_dtype = STRATA_F32, .settings = &settings};
  double loss = 0;
  for (int64_t step = done; step < steps; ++step) {
    loss = 0;
    for (int i = 0; i < kElems; ++i) {
      const float error = weight[i] - (float)(i % 7) / 7;
      gradient[i] = 2 * error;
      loss += (double)error * error / kElems;
    }
    must(strata_session_step(session, &update, 1)); /* returns when `weight` is written */
    if (step + 1 == 100) must(strata_session_save(session, "c_session.checkpoints", /*keep=*/1));
  }
  printf("steps %lld to %lld: loss %.9f\n", (long long)done, (long long)steps, loss);
  must(strata_session_close(session));
  return 0;
}
