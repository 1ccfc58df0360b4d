use std::path::Path; use std::sync::Arc; use serde::{Serialize,Deserialize}; use crate::config::GateMode; use crate::guests::Program;
#[derive(Default)] pub struct Accepted; impl Accepted { pub fn load(_: &Path) -> Result<Self,String> { Ok(Self) } }
pub struct Gate { pub mode: GateMode, pub calls: u32, pub accepted: Accepted }
#[derive(Debug,Clone,Default,PartialEq,Serialize,Deserialize)] pub struct Verdict {}
impl Verdict { pub fn refusal(&self)->Option<String>{None} }
impl std::fmt::Display for Verdict { fn fmt(&self,f:&mut std::fmt::Formatter<'_>)->std::fmt::Result{f.write_str("x")} }
pub async fn prove(_e:&trueup_engine::Engine,_p:&Arc<Program>,_s:&Path,_n:&str,_d:&str,_cpu:u64,_g:&Gate)->Verdict{Verdict{}}
