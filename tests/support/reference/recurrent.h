#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <strata/kernels/values/delta_heads.h>
#include <strata/kernels/values/scan_heads.h>

/// The recurrent ops in f64, row by row as their definitions say.
namespace strata::test::reference {

using Doubles = std::vector<double>;

/// x / sqrt(the sum of squares + 1e-6) * factor, and its derivative.
inline Doubles unit(const double* x, std::int64_t n, double factor) {
  double squares = 1e-6;
  for (std::int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  Doubles out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(x[i] / std::sqrt(squares) * factor);
  return out;
}
inline void unit_backward(const double* x, const Doubles& d, std::int64_t n, double factor, double* dx) {
  double squares = 1e-6, product = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    squares += x[i] * x[i];
    product += x[i] * d[static_cast<std::size_t>(i)];
  }
  const double inverse = 1 / std::sqrt(squares);
  for (std::int64_t i = 0; i < n; ++i)
    dx[i] += factor * inverse * (d[static_cast<std::size_t>(i)] - x[i] * product * inverse * inverse);
}

struct DeltaResults {
  Doubles out, dqkv, dg, dbeta, states;  ///< states: after the last row of each value head
};

/// The gated delta rule on rows of which row t begins a document if `begins` [t], and its derivative for
/// dout.
class DeltaRule {
 public:
  DeltaRule(const kernels::DeltaHeads& heads, const Doubles& qkv, const Doubles& g, const Doubles& beta,
            const Doubles& dout, const std::vector<bool>& begins)
      : h_(heads), qkv_(qkv), g_(g), beta_(beta), dout_(dout), begins_(begins) {
    results.out.resize(dout.size());
    results.dqkv.resize(qkv.size());
    results.dg.resize(g.size());
    results.dbeta.resize(beta.size());
    for (std::int64_t head = 0; head < h_.value_heads; ++head) run(head);
  }
  DeltaResults results;

 private:
  /// What a row computes.
  struct Row {
    Doubles q, k, p, u, decayed, state;
  };
  std::int64_t rows() const { return static_cast<std::int64_t>(begins_.size()); }
  std::int64_t q_at(std::int64_t t, std::int64_t head) const {
    return t * h_.qkv_width() + head / h_.group() * h_.key_dim;
  }
  std::int64_t k_at(std::int64_t t, std::int64_t head) const {
    return q_at(t, head) + std::int64_t{h_.key_heads} * h_.key_dim;
  }
  std::int64_t v_at(std::int64_t t, std::int64_t head) const {
    return t * h_.qkv_width() + 2 * std::int64_t{h_.key_heads} * h_.key_dim + head * h_.value_dim;
  }
  static double& at(Doubles& x, std::int64_t i) { return x[static_cast<std::size_t>(i)]; }
  static double at(const Doubles& x, std::int64_t i) { return x[static_cast<std::size_t>(i)]; }

  void run(std::int64_t head) {
    const std::int64_t dk = h_.key_dim, dv = h_.value_dim;
    const double scale = 1 / std::sqrt(static_cast<double>(dk));
    std::vector<Row> kept;
    for (std::int64_t t = 0; t < rows(); ++t) {
      Row r = {unit(&qkv_[static_cast<std::size_t>(q_at(t, head))], dk, scale),
               unit(&qkv_[static_cast<std::size_t>(k_at(t, head))], dk, 1),
               Doubles(static_cast<std::size_t>(dv)),
               Doubles(static_cast<std::size_t>(dv)),
               Doubles(static_cast<std::size_t>(dk * dv)),
               {}};
      const double decay = std::exp(at(g_, t * h_.value_heads + head)),
                   beta = at(beta_, t * h_.value_heads + head);
      if (!begins_[static_cast<std::size_t>(t)])
        for (std::int64_t i = 0; i < dk * dv; ++i) at(r.decayed, i) = decay * at(kept.back().state, i);
      for (std::int64_t i = 0; i < dk; ++i)
        for (std::int64_t j = 0; j < dv; ++j) at(r.p, j) += at(r.k, i) * at(r.decayed, i * dv + j);
      for (std::int64_t j = 0; j < dv; ++j) at(r.u, j) = beta * (at(qkv_, v_at(t, head) + j) - at(r.p, j));
      r.state = r.decayed;
      for (std::int64_t i = 0; i < dk; ++i)
        for (std::int64_t j = 0; j < dv; ++j) {
          at(r.state, i * dv + j) += at(r.k, i) * at(r.u, j);
          at(results.out, t * h_.out_width() + head * dv + j) += at(r.q, i) * at(r.state, i * dv + j);
        }
      kept.push_back(std::move(r));
    }
    results.states.insert(results.states.end(), kept.back().state.begin(), kept.back().state.end());
    run_back(head, kept, scale);
  }
  void run_back(std::int64_t head, const std::vector<Row>& kept, double scale) {
    const std::int64_t dk = h_.key_dim, dv = h_.value_dim;
    Doubles d_state(static_cast<std::size_t>(dk * dv));
    for (std::int64_t t = rows() - 1; t >= 0; --t) {
      const Row& r = kept[static_cast<std::size_t>(t)];
      const double* const d = &dout_[static_cast<std::size_t>(t * h_.out_width() + head * dv)];
      const double beta = at(beta_, t * h_.value_heads + head);
      Doubles dq(static_cast<std::size_t>(dk)), dkey(dq), du(static_cast<std::size_t>(dv));
      for (std::int64_t i = 0; i < dk; ++i)
        for (std::int64_t j = 0; j < dv; ++j) {
          at(d_state, i * dv + j) += at(r.q, i) * d[j];
          at(dq, i) += at(r.state, i * dv + j) * d[j];
          at(du, j) += at(r.k, i) * at(d_state, i * dv + j);
          at(dkey, i) += at(r.u, j) * at(d_state, i * dv + j);
        }
      double& dbeta = at(results.dbeta, t * h_.value_heads + head);
      for (std::int64_t j = 0; j < dv; ++j) {
        dbeta += at(du, j) * (at(qkv_, v_at(t, head) + j) - at(r.p, j));
        at(results.dqkv, v_at(t, head) + j) = beta * at(du, j);
      }
      const bool begins = begins_[static_cast<std::size_t>(t)];
      for (std::int64_t i = 0; i < dk; ++i)
        for (std::int64_t j = 0; j < dv; ++j) {
          at(dkey, i) -= at(r.decayed, i * dv + j) * beta * at(du, j);
          at(d_state, i * dv + j) -= at(r.k, i) * beta * at(du, j);
          at(results.dg, t * h_.value_heads + head) += at(d_state, i * dv + j) * at(r.decayed, i * dv + j);
        }
      const double decay = begins ? 0 : std::exp(at(g_, t * h_.value_heads + head));
      for (double& x : d_state) x *= decay;
      unit_backward(&qkv_[static_cast<std::size_t>(q_at(t, head))], dq, dk, scale,
                    &at(results.dqkv, q_at(t, head)));
      unit_backward(&qkv_[static_cast<std::size_t>(k_at(t, head))], dkey, dk, 1,
                    &at(results.dqkv, k_at(t, head)));
    }
  }

  const kernels::DeltaHeads h_;
  const Doubles &qkv_, &g_, &beta_, &dout_;
  const std::vector<bool>& begins_;
};

struct ScanResults {
  Doubles out, dxbc, dstep, dg, dd, states;  ///< states: after the last row of each head
};

/// The state scan on rows of which row t begins a document if `begins` [t], and its derivative for dout.
class StateScan {
 public:
  StateScan(const kernels::ScanHeads& heads, const Doubles& xbc, const Doubles& step, const Doubles& g,
            const Doubles& d, const Doubles& dout, const std::vector<bool>& begins)
      : h_(heads), xbc_(xbc), step_(step), g_(g), d_(d), dout_(dout), begins_(begins) {
    results.out.resize(dout.size());
    results.dxbc.resize(xbc.size());
    results.dstep.resize(step.size());
    results.dg.resize(g.size());
    results.dd.resize(d.size());
    for (std::int64_t head = 0; head < h_.heads; ++head) run(head);
  }
  ScanResults results;

 private:
  std::int64_t rows() const { return static_cast<std::int64_t>(begins_.size()); }
  std::int64_t x_at(std::int64_t t, std::int64_t head) const {
    return t * h_.xbc_width() + head * h_.head_dim;
  }
  std::int64_t b_at(std::int64_t t, std::int64_t head) const {
    return t * h_.xbc_width() + h_.out_width() + head / (h_.heads / h_.groups) * h_.state_dim;
  }
  std::int64_t c_at(std::int64_t t, std::int64_t head) const {
    return b_at(t, head) + std::int64_t{h_.groups} * h_.state_dim;
  }
  static double& at(Doubles& x, std::int64_t i) { return x[static_cast<std::size_t>(i)]; }
  static double at(const Doubles& x, std::int64_t i) { return x[static_cast<std::size_t>(i)]; }

  void run(std::int64_t head) {
    const std::int64_t n = h_.state_dim, p = h_.head_dim;
    Doubles state(static_cast<std::size_t>(n * p));
    std::vector<Doubles> before;  // after the decay
    for (std::int64_t t = 0; t < rows(); ++t) {
      const std::int64_t gate = t * h_.heads + head, out = t * h_.out_width() + head * p;
      const double decay = begins_[static_cast<std::size_t>(t)] ? 0 : std::exp(at(g_, gate));
      for (double& s : state) s *= decay;
      before.push_back(state);
      for (std::int64_t j = 0; j < p; ++j)
        at(results.out, out + j) = at(d_, head) * at(xbc_, x_at(t, head) + j);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < p; ++j) {
          at(state, i * p + j) += at(xbc_, b_at(t, head) + i) * at(step_, gate) * at(xbc_, x_at(t, head) + j);
          at(results.out, out + j) += at(xbc_, c_at(t, head) + i) * at(state, i * p + j);
        }
    }
    results.states.insert(results.states.end(), state.begin(), state.end());
    run_back(head, before);
  }
  void run_back(std::int64_t head, const std::vector<Doubles>& before) {
    const std::int64_t n = h_.state_dim, p = h_.head_dim;
    Doubles d_state(static_cast<std::size_t>(n * p));
    for (std::int64_t t = rows() - 1; t >= 0; --t) {
      const std::int64_t gate = t * h_.heads + head;
      const double step = at(step_, gate);
      const Doubles& decayed = before[static_cast<std::size_t>(t)];
      const double* const dout = &dout_[static_cast<std::size_t>(t * h_.out_width() + head * p)];
      for (std::int64_t j = 0; j < p; ++j) {
        const double x = at(xbc_, x_at(t, head) + j);
        double dv = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          const double b = at(xbc_, b_at(t, head) + i), c = at(xbc_, c_at(t, head) + i);
          double& d = at(d_state, i * p + j);
          d += c * dout[j];
          at(results.dxbc, c_at(t, head) + i) += (at(decayed, i * p + j) + b * step * x) * dout[j];
          at(results.dxbc, b_at(t, head) + i) += d * step * x;
          dv += d * b;
          at(results.dg, gate) += d * at(decayed, i * p + j);
        }
        at(results.dxbc, x_at(t, head) + j) = dv * step + at(d_, head) * dout[j];
        at(results.dstep, gate) += dv * x;
        at(results.dd, head) += dout[j] * x;
      }
      const double decay = begins_[static_cast<std::size_t>(t)] ? 0 : std::exp(at(g_, gate));
      for (double& d : d_state) d *= decay;
    }
  }

  const kernels::ScanHeads h_;
  const Doubles &xbc_, &step_, &g_, &d_, &dout_;
  const std::vector<bool>& begins_;
};

}  // namespace strata::test::reference
