#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numbers>
#include <vector>

/// Every op of strata/kernels in f64, written as plainly as its definition: the oracle of op tests and of
/// gradient checks of whole models. A matrix is a row-major Vec and sizes are arguments: T rows (tokens), h
/// row length, V vocabulary.
namespace strata::test::reference {

using Vec = std::vector<double>;
using Ints = std::vector<std::int32_t>;

inline Vec zeros(std::size_t n) { return Vec(n, 0.0); }

// --- embedding ---

inline Vec embedding_forward(const Ints& ids, const Vec& table, std::size_t h, std::size_t offset = 0) {
  Vec x(ids.size() * h);
  for (std::size_t t = 0; t < ids.size(); ++t)
    for (std::size_t c = 0; c < h; ++c)
      x[t * h + c] = table[(static_cast<std::size_t>(ids[t]) + offset) * h + c];
  return x;
}

inline Vec embedding_backward(const Ints& ids, const Vec& dx, std::size_t h, std::size_t vocab,
                              std::size_t offset = 0) {
  Vec dtable = zeros(vocab * h);
  for (std::size_t t = 0; t < ids.size(); ++t)
    for (std::size_t c = 0; c < h; ++c)
      dtable[(static_cast<std::size_t>(ids[t]) + offset) * h + c] += dx[t * h + c];
  return dtable;
}

// --- layer norm ---

struct Layernorm {
  Vec y, mean, rstd;
};
inline Layernorm layernorm_forward(const Vec& x, const Vec& weight, const Vec& bias, double eps) {
  const std::size_t h = weight.size();
  const std::size_t rows = h > 0 ? x.size() / h : 0;
  Layernorm out{zeros(x.size()), zeros(rows), zeros(rows)};
  for (std::size_t t = 0; t < rows; ++t) {
    double mean = 0.0, variance = 0.0;
    for (std::size_t c = 0; c < h; ++c) mean += x[t * h + c] / static_cast<double>(h);
    for (std::size_t c = 0; c < h; ++c)
      variance += (x[t * h + c] - mean) * (x[t * h + c] - mean) / static_cast<double>(h);
    out.mean[t] = mean;
    out.rstd[t] = 1.0 / std::sqrt(variance + eps);
    for (std::size_t c = 0; c < h; ++c)
      out.y[t * h + c] = (x[t * h + c] - mean) * out.rstd[t] * weight[c] + bias[c];
  }
  return out;
}

struct LayernormGrads {
  Vec dx, dweight, dbias;
};
inline LayernormGrads layernorm_backward(const Vec& x, const Vec& weight, const Vec& mean, const Vec& rstd,
                                         const Vec& dy) {
  const std::size_t h = weight.size();
  LayernormGrads g{zeros(x.size()), zeros(h), zeros(h)};
  for (std::size_t t = 0; t < mean.size(); ++t) {
    double mean_g = 0.0, mean_gx = 0.0;
    for (std::size_t c = 0; c < h; ++c) {
      const double normal = (x[t * h + c] - mean[t]) * rstd[t];
      mean_g += dy[t * h + c] * weight[c] / static_cast<double>(h);
      mean_gx += dy[t * h + c] * weight[c] * normal / static_cast<double>(h);
      g.dweight[c] += dy[t * h + c] * normal;
      g.dbias[c] += dy[t * h + c];
    }
    for (std::size_t c = 0; c < h; ++c) {
      const double normal = (x[t * h + c] - mean[t]) * rstd[t];
      g.dx[t * h + c] = rstd[t] * (dy[t * h + c] * weight[c] - mean_g - normal * mean_gx);
    }
  }
  return g;
}

// --- linear ---

/// y[T, N] = x[T, K] w[N, K]^T + b[N]; b may be empty.
inline Vec linear_forward(const Vec& x, const Vec& w, const Vec& b, std::size_t rows, std::size_t n,
                          std::size_t k) {
  Vec y(rows * n);
  for (std::size_t t = 0; t < rows; ++t)
    for (std::size_t j = 0; j < n; ++j) {
      double sum = b.empty() ? 0.0 : b[j];
      for (std::size_t p = 0; p < k; ++p) sum += x[t * k + p] * w[j * k + p];
      y[t * n + j] = sum;
    }
  return y;
}

struct LinearGrads {
  Vec dx, dw, db;
};
inline LinearGrads linear_backward(const Vec& x, const Vec& w, const Vec& dy, std::size_t rows, std::size_t n,
                                   std::size_t k) {
  LinearGrads g{zeros(rows * k), zeros(n * k), zeros(n)};
  for (std::size_t t = 0; t < rows; ++t)
    for (std::size_t j = 0; j < n; ++j) {
      g.db[j] += dy[t * n + j];
      for (std::size_t p = 0; p < k; ++p) {
        g.dx[t * k + p] += dy[t * n + j] * w[j * k + p];
        g.dw[j * k + p] += dy[t * n + j] * x[t * k + p];
      }
    }
  return g;
}

// --- elementwise ---

inline Vec add(const Vec& a, const Vec& b) {
  Vec y(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) y[i] = a[i] + b[i];
  return y;
}

inline Vec gelu_forward(const Vec& x) {
  Vec y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = 0.5 * x[i] *
           (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x[i] + 0.044715 * x[i] * x[i] * x[i])));
  return y;
}

inline Vec gelu_backward(const Vec& x, const Vec& dy) {
  Vec dx(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double root = std::sqrt(2.0 / std::numbers::pi);
    const double tanh_u = std::tanh(root * (x[i] + 0.044715 * x[i] * x[i] * x[i]));
    const double du = root * (1.0 + 3.0 * 0.044715 * x[i] * x[i]);
    dx[i] = dy[i] * (0.5 * (1.0 + tanh_u) + 0.5 * x[i] * (1.0 - tanh_u * tanh_u) * du);
  }
  return dx;
}

inline Vec relu_forward(const Vec& x) {
  Vec y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = std::max(x[i], 0.0);
  return y;
}

/// Each row has 2f elements: gate | up.
inline Vec geglu_forward(const Vec& gate_up, std::size_t f) {
  Vec y(gate_up.size() / 2);
  for (std::size_t t = 0; t * f < y.size(); ++t)
    for (std::size_t c = 0; c < f; ++c)
      y[t * f + c] = gelu_forward({gate_up[2 * t * f + c]})[0] * gate_up[(2 * t + 1) * f + c];
  return y;
}
inline Vec swiglu_forward(const Vec& gate_up, std::size_t f) {
  Vec y(gate_up.size() / 2);
  for (std::size_t t = 0; t * f < y.size(); ++t)
    for (std::size_t c = 0; c < f; ++c) {
      const double gate = gate_up[2 * t * f + c], up = gate_up[(2 * t + 1) * f + c];
      y[t * f + c] = gate / (1.0 + std::exp(-gate)) * up;
    }
  return y;
}

// --- RMS norm ---

inline Vec rmsnorm_forward(const Vec& x, const Vec& weight, double eps) {
  const std::size_t h = weight.size();
  Vec y(x.size());
  for (std::size_t t = 0; t * h < x.size(); ++t) {
    double squares = 0.0;
    for (std::size_t c = 0; c < h; ++c) squares += x[t * h + c] * x[t * h + c];
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(h) + eps);
    for (std::size_t c = 0; c < h; ++c) y[t * h + c] = x[t * h + c] * rstd * weight[c];
  }
  return y;
}

/// RMS-normalizes the query and key heads of rows q | k | v. Each weight is as long as the run it normalizes,
/// which may also be longer than one head.
inline Vec qk_norm_forward(const Vec& qkv, const Vec& q_weight, const Vec& k_weight, std::size_t heads,
                           std::size_t kv_heads, double eps, bool values = false) {
  const std::size_t n = q_weight.size(), m = k_weight.size(), width = heads * n + 2 * kv_heads * m;
  Vec y = qkv;
  for (std::size_t t = 0; t * width < qkv.size(); ++t)
    for (std::size_t run = 0; run < heads + (values ? 2 : 1) * kv_heads; ++run) {
      const Vec weight = run < heads ? q_weight : run < heads + kv_heads ? k_weight : Vec(m, 1.0);
      const auto at =
          static_cast<std::ptrdiff_t>(t * width + (run < heads ? run * n : heads * n + (run - heads) * m));
      const auto end = at + static_cast<std::ptrdiff_t>(weight.size());
      const Vec row = rmsnorm_forward(Vec(qkv.begin() + at, qkv.begin() + end), weight, eps);
      std::copy(row.begin(), row.end(), y.begin() + at);
    }
  return y;
}
/// Converts a weight that is learned as an offset from 1 to its actual value.
inline Vec plus(Vec weight, double offset) {
  for (double& w : weight) w += offset;
  return weight;
}

// --- rotary positions ---

/// Rotates the first `n` elements of each of the first `heads` heads of size d: pair i of n / 2 by the angle
/// position * inv_freq[i].
inline Vec rope_forward(const Vec& x, const Ints& positions, const Vec& inv_freq, std::size_t heads,
                        std::size_t d, bool interleaved) {
  const std::size_t width = positions.empty() ? 0 : x.size() / positions.size(), n = inv_freq.size();
  Vec y = x;
  for (std::size_t t = 0; t < positions.size(); ++t)
    for (std::size_t head = 0; head < heads; ++head)
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t at = t * width + head * d;
        const std::size_t a = at + (interleaved ? 2 * i : i), b = at + (interleaved ? 2 * i + 1 : i + n);
        const double angle = positions[t] * inv_freq[i];
        y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
      }
  return y;
}

// --- cross entropy ---

struct CrossEntropy {
  Vec losses, lse;
  double mean_loss = 0.0;
};
inline CrossEntropy cross_entropy_forward(const Vec& logits, const Ints& targets, std::size_t vocab) {
  CrossEntropy out{zeros(targets.size()), zeros(targets.size())};
  double counted = 0.0;
  for (std::size_t t = 0; t < targets.size(); ++t) {
    const double* row = logits.data() + t * vocab;
    const double most = *std::max_element(row, row + vocab);
    double sum = 0.0;
    for (std::size_t c = 0; c < vocab; ++c) sum += std::exp(row[c] - most);
    out.lse[t] = most + std::log(sum);
    if (targets[t] < 0) continue;
    out.losses[t] = out.lse[t] - row[static_cast<std::size_t>(targets[t])];
    out.mean_loss += out.losses[t];
    counted += 1.0;
  }
  if (counted > 0.0) out.mean_loss /= counted;
  return out;
}

/// The gradient of `scale` times the sum of the losses.
inline Vec cross_entropy_backward(const Vec& logits, const Ints& targets, const Vec& lse, std::size_t vocab,
                                  double scale) {
  Vec dlogits(logits.size());
  for (std::size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    for (std::size_t c = 0; c < vocab; ++c)
      dlogits[t * vocab + c] = scale * std::exp(logits[t * vocab + c] - lse[t]);
    dlogits[t * vocab + static_cast<std::size_t>(targets[t])] -= scale;
  }
  return dlogits;
}

// --- attention ---

struct AttentionShape {
  std::size_t batch, seq, heads, head_dim;
  bool causal = true;
  std::size_t kv_heads = 0;  ///< 0: equal to heads
  bool alibi = false;
  Ints doc_start = {};  ///< for each token, the start of its document; empty: no documents
  std::size_t window = 0;
  double softcap = 0, scale = 0;  ///< softcap 0: none; scale 0: 1 / sqrt(head_dim)
  Vec sinks = {};                 ///< a score of each head that has no value; empty: none
  std::size_t h() const { return heads * head_dim; }
  std::size_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  std::size_t width() const { return h() + 2 * key_heads() * head_dim; }
  std::size_t keys_of(std::size_t query) const { return causal ? query + 1 : seq; }
  bool sees(std::size_t b, std::size_t query, std::size_t key) const {
    if (window > 0 && query >= key + window) return false;
    return doc_start.empty() || key >= static_cast<std::size_t>(doc_start[b * seq + query]);
  }
  double factor() const { return scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_dim)); }
  /// tanh in the soft cap, of the scaled score.
  double tanh_of(double scaled) const { return std::tanh(scaled / softcap); }
  double slope(std::size_t head) const {
    std::size_t power = 1;
    while (2 * power <= heads) power *= 2;
    if (head < power) return std::pow(2.0, -8.0 / static_cast<double>(power) * static_cast<double>(head + 1));
    return std::pow(2.0, -4.0 / static_cast<double>(power) * static_cast<double>(2 * (head - power) + 1));
  }
  /// Offset in qkv of the part (0 q, 1 k, 2 v) of token s of sequence b that query head `head` uses.
  std::size_t packed(std::size_t b, std::size_t s, std::size_t part, std::size_t head) const {
    const std::size_t key_head = head / (heads / key_heads());
    const std::size_t at = part == 0 ? head : heads + (part - 1) * key_heads() + key_head;
    return (b * seq + s) * width() + at * head_dim;
  }
  std::size_t plain(std::size_t b, std::size_t s, std::size_t head) const {
    return (b * seq + s) * h() + head * head_dim;
  }
};

struct Attention {
  Vec out, lse;
};

/// The attention probabilities of one query over the keys it sees, and their log-sum-exp.
inline Vec attention_probabilities(const Vec& qkv, const AttentionShape& a, std::size_t b, std::size_t head,
                                   std::size_t query, double* lse) {
  Vec p(a.keys_of(query));
  for (std::size_t key = 0; key < p.size(); ++key) {
    for (std::size_t c = 0; c < a.head_dim; ++c)
      p[key] += qkv[a.packed(b, query, 0, head) + c] * qkv[a.packed(b, key, 1, head) + c];
    p[key] *= a.factor();
    if (a.softcap > 0) p[key] = a.softcap * a.tanh_of(p[key]);
    if (a.alibi) p[key] += a.slope(head) * (static_cast<double>(key) - static_cast<double>(query));
    if (!a.sees(b, query, key)) p[key] = -1e300;
  }
  const double sink = a.sinks.empty() ? -1e300 : a.sinks[head];
  const double most = std::max(sink, *std::max_element(p.begin(), p.end()));
  double sum = std::exp(sink - most);
  for (const double s : p) sum += std::exp(s - most);
  *lse = most + std::log(sum);
  for (double& s : p) s = std::exp(s - *lse);
  return p;
}

inline Attention attention_forward(const Vec& qkv, const AttentionShape& a) {
  Attention out{zeros(a.batch * a.seq * a.h()), zeros(a.batch * a.heads * a.seq)};
  for (std::size_t b = 0; b < a.batch; ++b)
    for (std::size_t head = 0; head < a.heads; ++head)
      for (std::size_t query = 0; query < a.seq; ++query) {
        const Vec p =
            attention_probabilities(qkv, a, b, head, query, &out.lse[(b * a.heads + head) * a.seq + query]);
        for (std::size_t key = 0; key < p.size(); ++key)
          for (std::size_t c = 0; c < a.head_dim; ++c)
            out.out[a.plain(b, query, head) + c] += p[key] * qkv[a.packed(b, key, 2, head) + c];
      }
  return out;
}

inline Vec attention_backward(const Vec& qkv, const Vec& dout, const AttentionShape& a) {
  Vec dqkv(qkv.size());
  for (std::size_t b = 0; b < a.batch; ++b)
    for (std::size_t head = 0; head < a.heads; ++head)
      for (std::size_t query = 0; query < a.seq; ++query) {
        double lse = 0.0;
        const Vec p = attention_probabilities(qkv, a, b, head, query, &lse);
        const double* d = dout.data() + a.plain(b, query, head);
        Vec dp(p.size());
        double mean_dp = 0.0;
        for (std::size_t key = 0; key < p.size(); ++key) {
          for (std::size_t c = 0; c < a.head_dim; ++c) {
            dp[key] += d[c] * qkv[a.packed(b, key, 2, head) + c];
            dqkv[a.packed(b, key, 2, head) + c] += p[key] * d[c];
          }
          mean_dp += p[key] * dp[key];
        }
        for (std::size_t key = 0; key < p.size(); ++key) {
          double ds = p[key] * (dp[key] - mean_dp) * a.factor();
          if (a.softcap > 0) {
            double product = 0.0;
            for (std::size_t c = 0; c < a.head_dim; ++c)
              product += qkv[a.packed(b, query, 0, head) + c] * qkv[a.packed(b, key, 1, head) + c];
            ds *= 1.0 - a.tanh_of(product * a.factor()) * a.tanh_of(product * a.factor());
          }
          for (std::size_t c = 0; c < a.head_dim; ++c) {
            dqkv[a.packed(b, query, 0, head) + c] += ds * qkv[a.packed(b, key, 1, head) + c];
            dqkv[a.packed(b, key, 1, head) + c] += ds * qkv[a.packed(b, query, 0, head) + c];
          }
        }
      }
  return dqkv;
}

// --- checks ---

/// The gradient of f at x by central differences, against which the analytic gradients above are checked.
inline Vec central_differences(const std::function<double(const Vec&)>& f, Vec x, double step = 1e-5) {
  Vec gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + step;
    const double above = f(x);
    x[i] = at - step;
    const double below = f(x);
    x[i] = at;
    gradient[i] = (above - below) / (2.0 * step);
  }
  return gradient;
}

inline double dot(const Vec& a, const Vec& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace strata::test::reference
