"""LightGCN (He et al., "LightGCN", SIGIR 2020; the paper's Eqs. 1–4).

    e_u^(l+1) = Σ_{i ∈ I_u} e_i^(l) / √(|I_u||U_i|)      items alike      e = Σ_l α_l e^(l)

`LightGCNPlus` is LightGCN+ (Eq. 6), whose users are built from item vectors W of their own:
e_u^(0) = |I_u|^-½ Σ_{i ∈ I_u} W_i.
"""

from __future__ import annotations

from lpgcn.model.backbones.backbone import BUILT_USERS, Linear


class LightGCN(Linear):
    """Users and items are parameters."""

    summary = "LightGCN, without maps or nonlinearities (He et al., 2020)"


class LightGCNPlus(Linear):
    """Items are parameters, users are built."""

    summary = "LightGCN+, with users built from items (Wu et al.)"
    tables = BUILT_USERS
