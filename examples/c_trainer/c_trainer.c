/* A trainer in plain C whose optimizer states strata holds: a network of two layers learns a function of two
 * variables. Parameters and gradients are arrays of the program; moments are in RAM or, if a folder is given, on
 * NVMe.
 *
 *   c_trainer [STEPS [FOLDER]] */
#include <strata.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kInputs = 2, kHidden = 256, kBatch = 64, kParams = 4 };

/* Ends the program with the reason if a call fails. */
static void must(strata_status status, const char* call) {
  if (status == STRATA_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, strata_status_name(status), strata_last_error());
  exit(1);
}
#define MUST(call) must(call, #call)

static float uniform(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / 8388608.0f - 1.0f; /* -1 to 1 */
}

/* A parameter, its gradient, and what strata is told of it. */
typedef struct tensor {
  const char* name;
  int64_t dims[2];
  float *values, *gradient;
} tensor;

static int64_t elems(const tensor* t) { return t->dims[0] * t->dims[1]; }

/* Runs a batch forward and backward; returns the mean square error. */
static float forward_backward(tensor* t) {
  float *w1 = t[0].values, *b1 = t[1].values, *w2 = t[2].values, *b2 = t[3].values;
  float loss = 0;
  for (int p = 0; p < kParams; ++p) memset(t[p].gradient, 0, (size_t)elems(&t[p]) * sizeof(float));
  for (int n = 0; n < kBatch; ++n) {
    const float x[kInputs] = {uniform(), uniform()};
    float hidden[kHidden], y = b2[0];
    for (int h = 0; h < kHidden; ++h) {
      hidden[h] = tanhf(w1[h * kInputs] * x[0] + w1[h * kInputs + 1] * x[1] + b1[h]);
      y += w2[h] * hidden[h];
    }
    const float error = y - sinf(3 * x[0]) * x[1];
    const float dy = 2 * error / kBatch;
    loss += error * error / kBatch;
    t[3].gradient[0] += dy;
    for (int h = 0; h < kHidden; ++h) {
      const float dh = dy * w2[h] * (1 - hidden[h] * hidden[h]);
      t[2].gradient[h] += dy * hidden[h];
      t[1].gradient[h] += dh;
      t[0].gradient[h * kInputs] += dh * x[0];
      t[0].gradient[h * kInputs + 1] += dh * x[1];
    }
  }
  return loss;
}

/* A session with the four parameters. */
static strata_session open_session(tensor* t, const char* folder) {
  strata_session session;
  void* addresses[kParams];
  strata_plan plan = {.struct_size = sizeof plan};
  strata_session_options options = {.struct_size = sizeof options, .optimizer = STRATA_ADAMW, .threads = 1};
  if (folder != NULL) {
    options.placement = STRATA_PLACE_NVME;
    options.nvme_dirs = &folder;
    options.n_nvme_dirs = 1;
  }
  MUST(strata_session_create(&options, &session));
  for (int p = 0; p < kParams; ++p) {
    const strata_param param = {sizeof param, t[p].name, STRATA_F32, 2, t[p].dims, 0, 0};
    MUST(strata_session_add(session, &param));
    addresses[p] = t[p].values;
  }
  MUST(strata_session_plan(session, &plan));
  printf("%lld parameters; the states need %llu bytes of RAM and %llu on NVMe\n", (long long)plan.n_params,
         (unsigned long long)plan.pinned_bytes, (unsigned long long)plan.nvme_bytes);
  MUST(strata_session_seal(session, addresses, kParams));
  return session;
}

int main(int argc, char** argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : 400;
  tensor t[kParams] = {{"hidden.weight", {kHidden, kInputs}, NULL, NULL},
                       {"hidden.bias", {kHidden, 1}, NULL, NULL},
                       {"out.weight", {1, kHidden}, NULL, NULL},
                       {"out.bias", {1, 1}, NULL, NULL}};
  for (int p = 0; p < kParams; ++p) {
    t[p].values = malloc((size_t)elems(&t[p]) * sizeof(float));
    t[p].gradient = malloc((size_t)elems(&t[p]) * sizeof(float));
    if (t[p].values == NULL || t[p].gradient == NULL) return 1;
    for (int64_t i = 0; i < elems(&t[p]); ++i) t[p].values[i] = p == 0 ? 2 * uniform() : 0.1f * uniform();
  }
  const strata_session session = open_session(t, argc > 2 ? argv[2] : NULL);

  /* Weights decay, biases do not: two groups of settings. */
  strata_settings decayed = {.struct_size = sizeof decayed, .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
                             .weight_decay = 1e-3, .grad_factor = 1};
  strata_settings plain = decayed;
  plain.weight_decay = 0;
  strata_update updates[kParams];
  for (int p = 0; p < kParams; ++p) {
    const strata_update update = {sizeof update, p, t[p].values, t[p].gradient, STRATA_F32, 0, p % 2 == 0 ? &decayed : &plain};
    updates[p] = update;
  }

  float mean = 0;
  for (int step = 1; step <= steps; ++step) {
    mean += forward_backward(t);
    decayed.lr = plain.lr = 3e-3 * (1 - (double)(step - 1) / steps); /* read by the step */
    MUST(strata_session_step(session, updates, kParams));
    if (step % 50 == 0 || step == steps) {
      const int n = step % 50 == 0 ? 50 : step % 50;
      printf("step %4d of %d  loss %.5f\n", step, steps, (double)(mean / (float)n));
      mean = 0;
    }
  }
  MUST(strata_session_close(session));
  for (int p = 0; p < kParams; ++p) {
    free(t[p].values);
    free(t[p].gradient);
  }
  return 0;
}
