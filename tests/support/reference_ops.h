#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numbers>
#include <vector>

/// Every op of strata/kernels in f64, as plainly as its definition: the oracle of op tests and of whole-model
/// gradient checks. A matrix is a row-major Vec; sizes are arguments. T rows (tokens), h row length, V
/// vocabulary.
namespace strata::test::reference {

using Vec = std::vector<double>;
using Ints = std::vector<std::int32_t>;

inline Vec zeros(std::size_t n) { return Vec(n, 0.0); }

// --- embedding
// ---------------------------------------------------------------------------------------------------

inline Vec embedding_forward(const Ints& tokens, const Vec& wte, const Vec& wpe, std::size_t h,
                             std::size_t seq) {
  Vec x(tokens.size() * h);
  for (std::size_t t = 0; t < tokens.size(); ++t)
    for (std::size_t c = 0; c < h; ++c)
      x[t * h + c] = wte[static_cast<std::size_t>(tokens[t]) * h + c] + wpe[t % seq * h + c];
  return x;
}

struct EmbeddingGrads {
  Vec dwte, dwpe;
};
inline EmbeddingGrads embedding_backward(const Ints& tokens, const Vec& dx, std::size_t h, std::size_t seq,
                                         std::size_t vocab, std::size_t positions) {
  EmbeddingGrads g{zeros(vocab * h), zeros(positions * h)};
  for (std::size_t t = 0; t < tokens.size(); ++t)
    for (std::size_t c = 0; c < h; ++c) {
      g.dwte[static_cast<std::size_t>(tokens[t]) * h + c] += dx[t * h + c];
      g.dwpe[t % seq * h + c] += dx[t * h + c];
    }
  return g;
}

// --- layer norm
// --------------------------------------------------------------------------------------------------

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

// --- linear
// ------------------------------------------------------------------------------------------------------

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

// --- elementwise
// -------------------------------------------------------------------------------------------------

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

// --- cross entropy
// -----------------------------------------------------------------------------------------------

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

// --- attention
// ---------------------------------------------------------------------------------------------------

struct AttentionShape {
  std::size_t batch, seq, heads, head_dim;
  bool causal = true;
  std::size_t h() const { return heads * head_dim; }
  std::size_t keys_of(std::size_t query) const { return causal ? query + 1 : seq; }
  /// Where token s of `batch` has its part (0 q, 1 k, 2 v) of a head in qkv.
  std::size_t packed(std::size_t b, std::size_t s, std::size_t part, std::size_t head) const {
    return (b * seq + s) * 3 * h() + part * h() + head * head_dim;
  }
  std::size_t plain(std::size_t b, std::size_t s, std::size_t head) const {
    return (b * seq + s) * h() + head * head_dim;
  }
};

struct Attention {
  Vec out, lse;
};

/// The probabilities of one query over the keys it sees, and its lse.
inline Vec attention_probabilities(const Vec& qkv, const AttentionShape& a, std::size_t b, std::size_t head,
                                   std::size_t query, double* lse) {
  Vec p(a.keys_of(query));
  for (std::size_t key = 0; key < p.size(); ++key) {
    for (std::size_t c = 0; c < a.head_dim; ++c)
      p[key] += qkv[a.packed(b, query, 0, head) + c] * qkv[a.packed(b, key, 1, head) + c];
    p[key] /= std::sqrt(static_cast<double>(a.head_dim));
  }
  const double most = *std::max_element(p.begin(), p.end());
  double sum = 0.0;
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
  const double scale = 1.0 / std::sqrt(static_cast<double>(a.head_dim));
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
          const double ds = p[key] * (dp[key] - mean_dp) * scale;
          for (std::size_t c = 0; c < a.head_dim; ++c) {
            dqkv[a.packed(b, query, 0, head) + c] += ds * qkv[a.packed(b, key, 1, head) + c];
            dqkv[a.packed(b, key, 1, head) + c] += ds * qkv[a.packed(b, query, 0, head) + c];
          }
        }
      }
  return dqkv;
}

// --- checks
// ------------------------------------------------------------------------------------------------------

/// The gradient of f at x by central differences: what the analytic gradients above are themselves checked
/// against.
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
